"""Finds the logs at the `path` of a reader: directories of partitions, in one or several log directories.

It reads names, and the checkpoint with the log start offsets. `segment_files.py` reads segments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minibroker.pipeline.directory.reading_disk import DISK, is_remote, make_url, normalize_path
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.storage.checkpoints.checkpoint_texts import (
    LOG_START_OFFSET_CHECKPOINT,
    MalformedCheckpoint,
    parse_offset_checkpoint,
)
from minibroker.storage.names import LOG_SUFFIX, list_offsets_with_suffix, parse_log_name


@dataclass(frozen=True, slots=True)
class FoundLog:
    """The directory of one partition's log, and the log directory with its checkpoints."""

    partition: TopicPartition
    path: str
    log_directory: str


def parse_log_paths(text: str) -> tuple[str, ...]:
    """Return the directories in an option `path`: one, also as a URL, or several separated by commas.

    Local ones are absolute, URLs in the form of `reading_disk`. Raises `OptionError` for an unknown file system.
    """
    whole = normalize_path(text.strip())
    try:
        if DISK.is_directory(whole):
            return (make_absolute(whole),)
    except OSError as error:
        if "," not in whole:
            raise OptionError(f"path: {error}") from None
    return tuple(make_absolute(part.strip()) for part in text.split(",") if part.strip())


def make_absolute(path: str) -> str:
    """Return the whole path of what a user has named: a path or a URL."""
    path = normalize_path(path)
    return path if is_remote(path) else os.path.abspath(path)


def find_logs(paths: Sequence[str]) -> dict[TopicPartition, FoundLog]:
    """Return all logs in the directories. Each is a log directory, or the directory of one log.

    Logs that are being deleted (`-delete`) or moved (`-future`), and stray ones (`-stray`), are left out.

    Raises `OptionError` if a directory is missing or not readable, and if a log is in two directories.
    """
    found: dict[TopicPartition, FoundLog] = {}
    for path in paths:
        for log in _find_logs_at(path):
            other = found.setdefault(log.partition, log)
            if other.path != log.path:
                raise OptionError(f"path: {log.path} and {other.path} are both the log of one partition")
    return found


def measure_log_bytes(log: FoundLog) -> int:
    """Return the size of a log's segments. Raises `OSError`."""
    return sum(DISK.size_bytes(f"{log.path}/{name}") for name in DISK.list_names(log.path) if name.endswith(LOG_SUFFIX))


def read_log_start_offsets(log_directory: str) -> Mapping[tuple[str, int], int]:
    """Return the log start offsets in a directory's checkpoint. Raises `OptionError` if it is malformed.

    A log that is not listed begins with its first segment.
    """
    path = f"{log_directory}/{LOG_START_OFFSET_CHECKPOINT}"
    try:
        return parse_offset_checkpoint(DISK.read_whole(path))
    except FileNotFoundError:
        return {}
    except MalformedCheckpoint as error:
        raise OptionError(f"{path} is malformed: {error}") from None


def _find_logs_at(path: str) -> list[FoundLog]:
    path = make_absolute(path)
    try:
        entries = DISK.list_names_and_kinds(path)
    except OSError as error:
        raise OptionError(f"path: {_explain_missing_directory(path, error)}") from None
    if list_offsets_with_suffix(list(entries), LOG_SUFFIX):
        itself = parse_log_name(os.path.basename(path))
        if itself is None:
            raise OptionError(f"path: {make_url(path)} holds segments, but is not named <topic>-<partition>")
        return [FoundLog(TopicPartition(*itself), path, os.path.dirname(path))]
    partitions = ((parse_log_name(name), f"{path}/{name}") for name, is_directory in entries.items() if is_directory)
    return [
        FoundLog(TopicPartition(*partition), log_path, path)
        for partition, log_path in partitions
        if partition is not None
    ]


def _explain_missing_directory(path: str, error: OSError) -> str:
    """Return what is wrong with a directory. Pyarrow gives an error number, and a long text with the path in it."""
    reason = os.strerror(error.errno) if error.errno else error.strerror
    return f"{make_url(path)}: {reason or error}"
