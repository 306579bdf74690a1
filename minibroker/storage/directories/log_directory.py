"""A directory of `log.dirs`: its lock, its identity, its checkpoints and its logs."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from minibroker.protocol.primitives import parse_uuid
from minibroker.storage.checkpoints.checkpoint_texts import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    MalformedCheckpoint,
    TopicPartition,
    format_properties,
    parse_properties,
    parse_topic_id,
)
from minibroker.storage.checkpoints.offset_checkpoint import OffsetCheckpoint
from minibroker.storage.directories.log_copying import LogCopy
from minibroker.storage.environment import run_and_return_error
from minibroker.storage.files import File
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import (
    CLEAN_SHUTDOWN,
    DELETED_LOG_SUFFIX,
    LOG_SUFFIX,
    MOVED_MARKER,
    STRAY_LOG_SUFFIX,
    format_log_name,
    is_deleted_log_name,
    make_future_log_name,
    make_log_name_with_suffix,
    parse_future_log_name,
    parse_log_name,
)
from minibroker.storage.recovery.recovery import (
    NO_TOPIC_ID,
    Checkpoints,
    LogDirectoryError,
    create_log,
    open_log,
    write_topic_id,
)
from minibroker.storage.removal import TreeRemoval

LOCK = ".lock"
META_PROPERTIES_VERSION = "1"
REMEDIES = {  # for a directory of another broker, by the key
    "node.id": "; set node.id={0} to start that broker, or another directory in log.dirs",
    "broker.id": "; set node.id={0} to start that broker, or another directory in log.dirs",
    "cluster.id": "; give --cluster-id {0} to start that cluster, or another directory in log.dirs",
}
BROKER_EPOCH = rb'"brokerEpoch":\s*(-?[0-9]{1,19})'
FORGETTING_DELAY_MS = 1000
CLOSING_THREADS = 16  # a file system syncs many files at once in hardly more time than one


def is_directory_id(text: str) -> bool:
    """Return whether this is an id as Kafka prints them, 22 characters of base64url."""
    try:
        parse_uuid(text)
    except ValueError:
        return False
    return True


def choose_lasting_recovery_point(log: Log) -> int:
    """Return the recovery point to checkpoint: the log's, or 1 less, so that recovery after a roll reads both segments.

    A start after a crash reads the segment with this offset, and those after it. If a segment begins at the recovery
    point later, the indexes of the segment before may not be synced, so it must be read, too.
    """
    segments, point = log.segments, log.recovery_point
    place = bisect_left(segments, point, key=lambda segment: segment.base_offset)
    begins_a_segment = place < len(segments) and segments[place].base_offset == point
    return point if begins_a_segment else max(point - 1, 0)


# The offset of a log in each checkpoint; None for no row.
CHECKPOINTED: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT_CHECKPOINT: choose_lasting_recovery_point,
    LOG_START_OFFSET_CHECKPOINT: lambda log: (
        log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
    ),
    REPLICATION_OFFSET_CHECKPOINT: lambda log: log.high_watermark,
    CLEANER_OFFSET_CHECKPOINT: lambda log: log.clean_offset or None,
}
OFFSET_CHECKPOINTS = tuple(CHECKPOINTED)


def _run_jobs_in_threads(jobs: Sequence[Callable[[], Exception | None]]) -> list[Exception]:
    """Run all jobs in several threads, and return the errors that they return."""
    from concurrent.futures import ThreadPoolExecutor  # here, as it is not needed before the stop

    def run_jobs_of_part(part: Sequence[Callable[[], Exception | None]]) -> list[Exception]:
        return [error for job in part if (error := job()) is not None]

    parts = [jobs[start::CLOSING_THREADS] for start in range(CLOSING_THREADS)]
    with ThreadPoolExecutor(CLOSING_THREADS) as pool:
        return [error for errors in pool.map(run_jobs_of_part, filter(None, parts)) for error in errors]


class LogDirectory:
    """A directory of logs, locked from `create_and_lock()` to `close()`.

    `clean` says whether the last stop was clean; `cluster_id` and `directory_id` are those of `meta.properties`.
    Methods raise `LogDirectoryError` if a person must act.
    """

    def __init__(self, environment: Environment, path: str) -> None:
        self.path = path
        self.clean = True
        self.cluster_id = ""
        self.directory_id = ""
        self.logs: dict[TopicPartition, Log] = {}
        self._environment = environment
        self._disk = environment.disk
        self._lock: File | None = None
        self._missing: list[str] = []
        self._broker_epoch = -1
        self._checkpoints = {name: OffsetCheckpoint(environment, f"{path}/{name}") for name in OFFSET_CHECKPOINTS}
        self._removal = TreeRemoval(environment)
        self._unopened: set[TopicPartition] = set()
        self._is_to_forget = False  # a write of the checkpoints without deleted logs is scheduled

    def create_and_lock(self) -> str | None:
        """Create and lock the directory. Return the cluster id in it, or None."""
        try:
            self._missing = self._disk.list_missing_directories(self.path)
            self._disk.make_directory(self.path)
            self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        except FileExistsError as error:
            message = f"log directory {self.path} cannot be used: it is a file, not a directory"
            raise LogDirectoryError(message) from error
        except OSError as error:
            raise LogDirectoryError(f"log directory {self.path} cannot be used: {error.strerror or error}") from error
        if self._lock is None:
            raise LogDirectoryError(f"log directory {self.path} is in use by another process")
        return self._read_meta_properties().get("cluster.id")

    def check_meta_properties(self, node_id: int, cluster_id: str) -> dict[str, str]:
        """Return the properties, empty if there are none. Raises `LogDirectoryError` if they are another broker's.

        In version 0, that of Kafka with ZooKeeper, node.id is called broker.id.
        """
        values = self._read_meta_properties()
        id_key = "broker.id" if values.get("version") == "0" else "node.id"
        expected = {"cluster.id": cluster_id, id_key: str(node_id)}
        if id_key == "node.id":
            expected["version"] = META_PROPERTIES_VERSION
        for key, value in expected.items():
            if values and values.get(key) != value:
                raise LogDirectoryError(
                    f"{self.path}/{META_PROPERTIES} says {key}={values.get(key)}, but this broker has {value}"
                    + REMEDIES.get(key, "").format(values.get(key))
                )
        if id_key == "broker.id" and self.list_logs():
            raise LogDirectoryError(
                f"{self.path} was written by a Kafka with ZooKeeper, where the topics of its logs are stored"
            )
        directory_id = values.get("directory.id")
        if directory_id is not None and not is_directory_id(directory_id):
            raise LogDirectoryError(
                f"{self.path}/{META_PROPERTIES} says directory.id={directory_id}, which is not an id of 22 characters; "
                "remove the line, and the next start writes a new one"
            )
        return values

    def open(self, node_id: int, cluster_id: str, new_id: Callable[[], str]) -> None:
        """Check or write the identity, read the checkpoints, and remove the marker of a clean stop.

        `new_id` returns a new directory id. Call this once, after `create_and_lock()`.
        """
        try:
            self._check_and_complete_meta_properties(node_id, cluster_id, new_id)
            for path in self._missing:
                self._disk.sync_directory(self._disk.get_parent(path))
            for path in self._list_paths_of_deleted_logs():
                self._disk.remove_tree(path)
            self._unopened = set(self.list_logs())
            for checkpoint in self._checkpoints.values():
                checkpoint.read_offsets(self._unopened)
            self._remove_clean_shutdown_marker()
        except OSError as error:
            raise LogDirectoryError(f"log directory {self.path} cannot be used: {error.strerror or error}") from error

    def list_logs(self) -> list[TopicPartition]:
        """Return the (topic, partition) of each log in the directory, open or not."""
        try:
            names = self._disk.list_names(self.path)
        except OSError as error:
            raise LogDirectoryError(f"log directory {self.path} cannot be used: {error.strerror or error}") from error
        found = ((name, parse_log_name(name)) for name in names)
        return [key for name, key in found if key and self._disk.is_directory(f"{self.path}/{name}")]

    def open_log(self, topic: str, partition: int, settings: LogSettings, *, refuse_record_loss: bool = False) -> Log:
        """Open a log of the directory. Recover it if the last stop was unclean.

        With `refuse_record_loss`, raises `LostRecords` if it would lose records that may have been synced.
        """
        key = topic, partition
        known = Checkpoints(
            clean=self.clean,
            recovery_point=self._checkpoints[RECOVERY_POINT_CHECKPOINT].offsets.get(key, 0),
            log_start_offset=self._checkpoints[LOG_START_OFFSET_CHECKPOINT].offsets.get(key, 0),
            clean_offset=self._checkpoints[CLEANER_OFFSET_CHECKPOINT].offsets.get(key, 0),
            high_watermark=self._checkpoints[REPLICATION_OFFSET_CHECKPOINT].offsets.get(key, 0),
            guarded=refuse_record_loss,
        )
        log = self.logs[key] = open_log(self._environment, self._make_log_path(key), key, settings, known)
        end_offset = log.log_end_offset if known.clean else choose_lasting_recovery_point(log)
        if end_offset < known.recovery_point:
            self._lower_recovery_point(log)
        if known.clean_offset <= log.log_end_offset:  # otherwise the log was truncated, and all of it is dirty
            log.clean_offset = known.clean_offset
        self._unopened.discard(key)
        return log

    def describe_unopened_log(self, topic: str, partition: int) -> tuple[str, bytes, int]:
        """Return (path, topic id, bytes of records) of a log in here; zeros for no id. Raises `LogDirectoryError`."""
        path = self._make_log_path((topic, partition))
        try:
            names = self._disk.list_names(path)
            size_bytes = sum(self._disk.size_bytes(f"{path}/{name}") for name in names if name.endswith(LOG_SUFFIX))
            text = self._disk.read_whole(f"{path}/{PARTITION_METADATA}") if PARTITION_METADATA in names else b""
        except OSError as error:
            raise LogDirectoryError(f"{path} cannot be read: {error.strerror or error}") from error
        try:
            return path, parse_topic_id(text), size_bytes
        except MalformedCheckpoint:
            return path, NO_TOPIC_ID, size_bytes

    def _lower_recovery_point(self, log: Log) -> None:
        """Lower the checkpointed recovery point of a log that ends before it. Raises `LogDirectoryError`."""
        try:
            self._update_checkpoint(RECOVERY_POINT_CHECKPOINT).write_offsets(sync=True)
        except OSError as error:
            raise LogDirectoryError(f"the log in {log.directory} cannot be opened: {error}") from error

    def create_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """Create an empty log. `topic_id` has 16 bytes; zeros stand for none."""
        key = topic, partition
        path = self._make_log_path(key)
        left = self._disk.exists(path)  # somebody else has made it, and there may be files in it
        try:
            self._remove_old_rows_of_new_log(key)
            self._disk.make_directory(path)
            write_topic_id(self._disk, path, topic_id, sync=False)
            if left:
                log = open_log(self._environment, path, key, settings, Checkpoints(clean=True))
                log.mark_all_files_unsynced()
            else:
                log = create_log(self._environment, path, key, topic_id, settings)
        except (OSError, LogDirectoryError) as error:
            if not left:
                with suppress(OSError):
                    self._disk.remove_tree(path)
            raise LogDirectoryError(f"{topic}-{partition} cannot be created: {error}") from error
        self.logs[key] = log
        return log

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Store the topic id of a log that has none. Raises `LogDirectoryError`."""
        try:
            write_topic_id(self._disk, log.directory, topic_id, sync=True)
        except OSError as error:
            raise LogDirectoryError(f"the topic id of {log} cannot be stored: {error}") from error
        log.topic_id = topic_id

    def rename_copy_to_log(self, log_copy: LogCopy) -> str:
        """Rename a complete copy of a log in here to the log's name. Return the new path. Raises `OSError`."""
        key = log_copy.log.topic, log_copy.log.partition
        path = self._make_log_path(key)
        self._remove_old_rows_of_new_log(key)
        self._disk.rename(log_copy.path, path)
        return path

    def open_log_from_copy(self, log_copy: LogCopy, settings: LogSettings) -> Log:
        """Open the log whose directory is a renamed copy of it. Segments that have indexes already are not read."""
        copied = log_copy.log
        key = copied.topic, copied.partition
        known = Checkpoints(
            clean=False, recovery_point=log_copy.unindexed_from_offset, log_start_offset=copied.log_start_offset
        )
        log = self.logs[key] = open_log(self._environment, self._make_log_path(key), key, settings, known)
        log.clean_offset = copied.clean_offset
        log.recovery_point = min(log.recovery_point, log_copy.recovery_point)
        return log

    def make_future_log_path(self, topic: str, partition: int, unique_suffix: str) -> str:
        """Return the path for a new copy of a log. `unique_suffix` is 32 hexadecimal digits."""
        return f"{self.path}/{make_future_log_name(topic, partition, unique_suffix)}"

    def remove_directory_soon(self, path: str) -> None:
        """Remove a useless directory in this one, in another thread."""
        self._removal.remove_tree_later(path, 0)

    def has_moved_log(self, key: TopicPartition) -> bool:
        """Return whether this log has replaced one in another directory, which may still be there."""
        return self._disk.exists(f"{self._make_log_path(key)}/{MOVED_MARKER}")

    def finish_interrupted_move(self, key: TopicPartition, older_directory: LogDirectory | None) -> None:
        """Remove a moved log from its `older_directory`, and the marker of the move. For a start. Raises `OSError`."""
        if older_directory is not None:
            self._disk.remove_tree(older_directory._make_log_path(key))
            self._disk.sync_directory(older_directory.path)
        self._disk.remove(f"{self._make_log_path(key)}/{MOVED_MARKER}")

    def remove_future_logs(self) -> list[TopicPartition]:
        """Remove the incomplete copies of logs, and return their (topic, partition). Raises `OSError`."""
        found = [(name, key) for name in self._disk.list_names(self.path) if (key := parse_future_log_name(name))]
        for name, _ in found:
            self._disk.remove_tree(f"{self.path}/{name}")
        return [key for _, key in found]

    def delete_log(self, log: Log, unique_suffix: str) -> None:
        """Rename the log's directory at once, and remove it after `file.delete.delay.ms`.

        `unique_suffix` is 32 hexadecimal digits, others for each deletion. Raises `OSError`; then nothing has changed.
        """
        path = self._rename_and_close_log((log.topic, log.partition), unique_suffix, DELETED_LOG_SUFFIX)
        self._removal.remove_tree_later(path, log.settings.file_delete_delay_ms)

    def rename_log_to_stray(self, topic: str, partition: int, unique_suffix: str) -> str:
        """Rename a stray log's directory, and close the log. Return the new path. Raises `OSError`."""
        return self._rename_and_close_log((topic, partition), unique_suffix, STRAY_LOG_SUFFIX)

    def _rename_and_close_log(self, key: TopicPartition, unique_suffix: str, suffix: str) -> str:
        """Rename a log's directory, and close the log. Return the new path."""
        path = f"{self.path}/{make_log_name_with_suffix(*key, unique_suffix, suffix)}"
        self._disk.rename(self._make_log_path(key), path)
        if key in self.logs:
            self.logs.pop(key).close_without_flush()
        self._unopened.discard(key)
        self._remove_checkpoint_rows(key)
        return path

    def _remove_checkpoint_rows(self, key: TopicPartition) -> None:
        """Remove a log's rows from the checkpoints, and schedule writing them, once for many logs."""
        had_rows = [checkpoint.remove_row(key) for checkpoint in self._checkpoints.values()]
        if any(had_rows) and not self._is_to_forget:
            self._is_to_forget = True
            self._environment.schedule(FORGETTING_DELAY_MS, self._write_checkpoints_soon)

    def _write_checkpoints_soon(self) -> None:
        self._is_to_forget = False
        if self._lock is not None:
            for checkpoint in self._checkpoints.values():
                checkpoint.write_offsets_soon()

    def _remove_old_rows_of_new_log(self, key: TopicPartition) -> None:
        """Remove the rows of a new log from the checkpoints, where a deleted log of its name may have left them.

        Raises `OSError`.
        """
        for checkpoint in self._checkpoints.values():
            checkpoint.remove_row_from_file(key)

    def write_checkpoints(self, *, sync: bool = False) -> None:
        """Write recovery points, log start offsets, high watermarks and clean offsets of all logs. Raises `OSError`."""
        for name in OFFSET_CHECKPOINTS:
            self._update_checkpoint(name).write_offsets(sync=sync)

    def write_checkpoint_soon(self, name: str) -> None:
        """Write one of `OFFSET_CHECKPOINTS` in another thread, if an offset in it has changed."""
        self._update_checkpoint(name).write_offsets_soon()

    def _update_checkpoint(self, name: str) -> OffsetCheckpoint:
        """Return the checkpoint with the current offsets. A log that was not opened keeps its row."""
        checkpoint = self._checkpoints[name]
        offset_of = CHECKPOINTED[name]
        for key, log in self.logs.items():
            offset = offset_of(log)
            if offset is None:
                checkpoint.offsets.pop(key, None)
            else:
                checkpoint.offsets[key] = offset
        return checkpoint

    def close(self, *, broker_epoch: int | None = None) -> None:
        """Flush and close all logs, then write the marker of a clean stop. Raises `KafkaError`, `OSError` if it cannot.

        All logs are closed even if one fails. There is no marker while a log that an unclean stop has left was not
        opened, and so not recovered. `broker_epoch` is written into the marker; None: the epoch of the last marker.
        """
        try:
            failures = _run_jobs_in_threads([partial(run_and_return_error, log.close) for log in self.logs.values()])
            self.write_checkpoints(sync=True)
            # Nothing else would remove them after the stop, and Kafka would take them for damaged logs.
            _run_jobs_in_threads(
                [partial(self._removal.remove_tree_now, path) for path in self._list_paths_of_deleted_logs()]
            )
            if failures:
                raise failures[0]
            if self.clean or not self._unopened:
                epoch = self._broker_epoch if broker_epoch is None else broker_epoch
                marker = f'{{"version":0,"brokerEpoch":{epoch}}}'.encode()
                self._disk.write_whole(f"{self.path}/{CLEAN_SHUTDOWN}", marker, sync=True)
        finally:
            self.close_without_checkpoints()

    def close_without_checkpoints(self) -> None:
        """Close all files as they are, and unlock the directory. The next start will recover it."""
        for log in self.logs.values():
            log.close_without_flush()
        self.logs.clear()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def unlock_and_remove_if_created(self) -> None:
        """Undo `create_and_lock()` after a start that failed: unlock the directory, and remove it if it is new."""
        if self._missing and self._lock is not None:  # without the lock, another process has created it
            self._removal.remove_tree_now(self.path)
        self.close_without_checkpoints()

    def _make_log_path(self, key: TopicPartition) -> str:
        return f"{self.path}/{format_log_name(*key)}"

    def _read_meta_properties(self) -> dict[str, str]:
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            return parse_properties(self._disk.read_whole(path)) if self._disk.exists(path) else {}
        except (OSError, MalformedCheckpoint) as error:
            raise LogDirectoryError(f"{path} cannot be read: {error}") from error

    def _check_and_complete_meta_properties(self, node_id: int, cluster_id: str, new_id: Callable[[], str]) -> None:
        """Check the properties, and write missing ones."""
        values = self.check_meta_properties(node_id, cluster_id)
        self.cluster_id = cluster_id
        self.directory_id = values.get("directory.id") or new_id()
        written = {
            "cluster.id": cluster_id,
            "directory.id": self.directory_id,
            "node.id": str(node_id),
            "version": META_PROPERTIES_VERSION,
        }
        if not written.items() <= values.items():
            text = format_properties(written, self._environment.now_ms())
            self._disk.write_whole(f"{self.path}/{META_PROPERTIES}", text, sync=True)

    def _remove_clean_shutdown_marker(self) -> None:
        """Read and remove the marker of a clean stop, before other writes. A directory without logs is clean, too."""
        path = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.clean = self._disk.exists(path) or not self.list_logs()
        if self._disk.exists(path):
            epoch = re.search(BROKER_EPOCH, self._disk.read_whole(path))  # Kafka before 3.7 left the file empty
            self._broker_epoch = int(epoch[1]) if epoch else -1
            self._disk.remove(path)
            self._disk.sync_directory(self.path)

    def _list_paths_of_deleted_logs(self) -> list[str]:
        return [f"{self.path}/{name}" for name in self._disk.list_names(self.path) if is_deleted_log_name(name)]
