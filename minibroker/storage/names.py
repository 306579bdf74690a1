"""The names of Kafka's directories and files: making and parsing them.

<topic>-<partition>/                              a log
<topic>-<partition>.<32 hex digits>-delete/       a log that is being removed
<topic>-<partition>.<32 hex digits>-stray/        a log that is not in the cluster's metadata
<topic>-<partition>.<32 hex digits>-future/       an incomplete copy of a log in another directory
<base offset, 20 digits>.log .index .timeindex .txnindex .snapshot
<any of these>.deleted .cleaned .swap             being deleted, being compacted, about to replace an original
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
QUORUM_STATE = "quorum-state"

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETED_LOG_SUFFIX = "-delete"
STRAY_LOG_SUFFIX = "-stray"
FUTURE_LOG_SUFFIX = "-future"
MOVED_MARKER = "moved"  # in a complete copy that replaces the log, or has replaced it

OFFSET_DIGITS = 20
MAX_NAME_BYTES = 255

# A topic's name may contain dashes and digits, so the partition is what follows the last dash.
_LOG_NAME = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})"
_DELETED_LOG_NAME = r".+\.[0-9a-f]{32}-delete"
_FUTURE_LOG_NAME = r"(?P<log>.+)\.[0-9a-f]{32}-future"


def make_segment_name(base_offset: int) -> str:
    """Return the name, without suffix, of a segment's files and of a snapshot at that offset."""
    return f"{base_offset:0{OFFSET_DIGITS}d}"


def parse_base_offset(name: str) -> int | None:
    """Return the offset in a file's name, None if there is none."""
    digits = name[:OFFSET_DIGITS]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit() else None


def list_offsets_with_suffix(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets in the names with exactly this suffix, ascending."""
    found = (parse_base_offset(name) for name in names if name[OFFSET_DIGITS:] == suffix)
    return sorted(offset for offset in found if offset is not None)


def format_log_name(topic: str, partition: int) -> str:
    """Return the name of a log's directory."""
    return f"{topic}-{partition}"


def parse_log_name(name: str) -> tuple[str, int] | None:
    """Return the (topic, partition) in the name of a log's directory, None for another name."""
    match = re.fullmatch(_LOG_NAME, name)
    return (match["topic"], int(match["partition"])) if match else None


def make_log_name_with_suffix(topic: str, partition: int, unique_suffix: str, suffix: str) -> str:
    """Return a new name for a log's directory, which a start does not take for a log. `unique_suffix` is 32 hex digits.

    The topic is shortened if the name would be too long for a file system.
    """
    end = f"-{partition}.{unique_suffix}{suffix}"
    return topic[: MAX_NAME_BYTES - len(end)] + end


def is_deleted_log_name(name: str) -> bool:
    """Return whether this is the name of a deleted log's directory."""
    return re.fullmatch(_DELETED_LOG_NAME, name) is not None


def make_future_log_name(topic: str, partition: int, unique_suffix: str) -> str:
    """Return the directory name of an incomplete copy of a log. `unique_suffix` is 32 hexadecimal digits."""
    return f"{format_log_name(topic, partition)}.{unique_suffix}{FUTURE_LOG_SUFFIX}"


def parse_future_log_name(name: str) -> tuple[str, int] | None:
    """Return the (topic, partition) in the directory name of an incomplete copy, None for another name."""
    match = re.fullmatch(_FUTURE_LOG_NAME, name)
    return parse_log_name(match["log"]) if match else None
