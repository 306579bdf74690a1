"""From the `path` of a reader to the logs that lie there: directories of partitions, in one or several log directories.

Only names are looked at, and the checkpoint that says where each log begins; the segments are `log_files.py`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    MalformedCheckpoint,
    offsets_from_text,
)
from minibroker.storage.files import Disk, File
from minibroker.storage.names import LOG_SUFFIX, offsets_with, topic_partition_of


class ReadOnlyDisk(Disk):
    """A disk for readers, who must change nothing, and perhaps may not."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading only. Nothing is ever made."""
        return self.open_to_read(path)


DISK = ReadOnlyDisk()


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The directory of one partition's log, and the log directory that it lies in, whose checkpoints tell of it."""

    partition: TopicPartition
    path: str
    log_directory: str


def paths_in(text: str) -> tuple[str, ...]:
    """The directories that an option `path` names: one, also as `file:` URI, or several with commas between them."""
    whole = _without_scheme(text.strip())
    if DISK.is_directory(whole):
        return (whole,)
    return tuple(_without_scheme(part.strip()) for part in text.split(",") if part.strip())


def find_logs(paths: Sequence[str]) -> dict[TopicPartition, FoundLog]:
    """All logs in the directories, each of which is a log directory, or itself the directory of one log.

    Logs that are being removed (`-delete`), moved (`-future`) or are not the cluster's (`-stray`) are none. Raises
    `OptionError` for a directory that is not there or not readable, and for a log that lies in two.
    """
    found: dict[TopicPartition, FoundLog] = {}
    for path in paths:
        for log in _logs_at(path):
            other = found.setdefault(log.partition, log)
            if other.path != log.path:
                raise OptionError(f"path: {log.path} and {other.path} are both the log of one partition")
    return found


def log_start_offsets(log_directory: str) -> Mapping[tuple[str, int], int]:
    """Where the logs of a directory begin, as far as its checkpoint says so. Raises `OptionError` if it is malformed.

    A log that is not named begins with its first segment.
    """
    path = f"{log_directory}/{LOG_START_OFFSET_CHECKPOINT}"
    try:
        return offsets_from_text(DISK.read_whole(path))
    except FileNotFoundError:
        return {}
    except MalformedCheckpoint as error:
        raise OptionError(f"{path} is malformed: {error}") from None


def _logs_at(path: str) -> list[FoundLog]:
    path = os.path.abspath(path)
    try:
        names = DISK.names(path)
    except OSError as error:
        raise OptionError(f"path: {path}: {error.strerror or error}") from None
    if offsets_with(names, LOG_SUFFIX):
        return [_log_itself(path)]
    partitions = ((topic_partition_of(name), f"{path}/{name}") for name in names)
    return [
        FoundLog(TopicPartition(*partition), log_path, path)
        for partition, log_path in partitions
        if partition is not None and DISK.is_directory(log_path)
    ]


def _log_itself(path: str) -> FoundLog:
    partition = topic_partition_of(os.path.basename(path))
    if partition is None:
        raise OptionError(f"path: {path} holds segments, but is not named <topic>-<partition>")
    return FoundLog(TopicPartition(*partition), path, os.path.dirname(path))


def _without_scheme(path: str) -> str:
    return unquote(urlsplit(path).path) if path.startswith("file:") else path
