"""The names of Kafka's directories and files: what they say, and how they are made.

    <topic>-<partition>/                              a log
    <topic>-<partition>.<32 hex digits>-delete/       a log that is being removed
    <topic>-<partition>.<32 hex digits>-stray/        a log that the cluster's metadata does not know
    <topic>-<partition>.<32 hex digits>-future/       a copy in the making of a log that lies in another directory
    <base offset, 20 digits>.log .index .timeindex .txnindex .snapshot
    <any of these>.deleted .cleaned .swap             on the way out, being compacted, about to replace an original

Nothing is looked up on the disk here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
TEMPORARY_SUFFIX = ".tmp"
DELETED_LOG_SUFFIX = "-delete"
STRAY_LOG_SUFFIX = "-stray"
FUTURE_LOG_SUFFIX = "-future"
MOVED_MARKER = "moved"  # in a copy that is whole, and has taken the log's place, or is about to

OFFSET_DIGITS = 20
MAX_NAME_BYTES = 255

# A topic's name may contain dashes and digits itself: the partition is what stands behind the last dash.
_LOG_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})")
_DELETED_LOG_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")
_FUTURE_LOG_NAME = re.compile(r"(?P<log>.+)\.[0-9a-f]{32}-future")


def segment_name(base_offset: int) -> str:
    """The name without suffix that the files of a segment, and a snapshot taken at that offset, bear."""
    return f"{base_offset:0{OFFSET_DIGITS}d}"


def offset_in(name: str) -> int | None:
    """The offset that a file is named by; None if it is named by none."""
    digits = name[:OFFSET_DIGITS]
    return int(digits) if len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit() else None


def offsets_with(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets that the files with exactly this suffix are named by, ascending."""
    found = (offset_in(name) for name in names if name[OFFSET_DIGITS:] == suffix)
    return sorted(offset for offset in found if offset is not None)


def log_name(topic: str, partition: int) -> str:
    """The name of a log's directory."""
    return f"{topic}-{partition}"


def topic_partition_of(name: str) -> tuple[str, int] | None:
    """The (topic, partition) whose log a directory of this name holds; None if it holds none."""
    match = _LOG_NAME.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else None


def unlisted_log_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return the name of a log's directory once no start shall take it for a log. `unique` is 32 hex digits.

    The topic's name is shortened if the whole would be too long for a file system.
    """
    end = f"-{partition}.{unique}{suffix}"
    return topic[: MAX_NAME_BYTES - len(end)] + end


def is_deleted_log(name: str) -> bool:
    """Whether a directory of this name holds a log that was deleted."""
    return _DELETED_LOG_NAME.fullmatch(name) is not None


def future_log_name(topic: str, partition: int, unique: str) -> str:
    """Return the name of the directory for a log's copy that is still being made. `unique` is 32 hexadecimal digits."""
    return f"{log_name(topic, partition)}.{unique}{FUTURE_LOG_SUFFIX}"


def topic_partition_of_future(name: str) -> tuple[str, int] | None:
    """The (topic, partition) of whose log a directory of this name has a copy in the making; None if it has none."""
    match = _FUTURE_LOG_NAME.fullmatch(name)
    return topic_partition_of(match["log"]) if match else None
