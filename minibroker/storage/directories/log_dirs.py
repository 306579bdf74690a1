"""All directories of `log.dirs` together. A new log goes to the directory with the fewest logs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from functools import partial

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.checkpoints.checkpoint_texts import TopicPartition
from minibroker.storage.directories.log_copying import LogCopy
from minibroker.storage.directories.log_directory import LogDirectory
from minibroker.storage.environment import run_and_return_error
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import MOVED_MARKER
from minibroker.storage.recovery.recovery import LogDirectoryError

MAXIMUM_PREFERRED = 10_000


class LogDirectories:
    """The logs of one broker.

    `cluster_id` is the one given, else the one in the directories, else `first_cluster_id`, else a new one.
    `new_id` returns a new id as Kafka's: 22 characters of base64url, of which the first is no dash. `broker_epoch` is
    written into the marker of a clean stop; None: the same as in the last marker.
    """

    def __init__(
        self,
        environment: Environment,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None,
        new_id: Callable[[], str],
        first_cluster_id: str | None = None,
    ) -> None:
        """Open all directories. Raises `LogDirectoryError`, and then has changed nothing and holds no lock."""
        for path in paths:
            if paths.count(path) > 1:
                raise LogDirectoryError(f"log directory {path} is listed twice")
        self.disk = environment.disk
        self.broker_epoch: int | None = None
        self.directories = [LogDirectory(environment, path) for path in paths]
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._interrupted: list[tuple[TopicPartition, LogDirectory]] = []
        try:
            cluster_ids = [cluster for directory in self.directories if (cluster := directory.create_and_lock())]
            self.cluster_id = cluster_id or (cluster_ids[0] if cluster_ids else first_cluster_id or new_id())
            for directory in self.directories:
                directory.check_meta_properties(node_id, self.cluster_id)
            self._found, older = self._find_logs_and_interrupted_moves()
            self._finish_interrupted_moves(older)
            for directory in self.directories:
                directory.open(node_id, self.cluster_id, new_id)
        except BaseException:
            for directory in self.directories:
                directory.unlock_and_remove_if_created()
            raise

    def __str__(self) -> str:
        return ", ".join(directory.path for directory in self.directories)

    @property
    def was_clean_shutdown(self) -> bool:
        """Whether all directories were left by a clean stop."""
        return all(directory.clean for directory in self.directories)

    def list_logs(self) -> list[TopicPartition]:
        """Return the (topic, partition) of each log in the directories, open or not."""
        return list(self._found)

    def has_log(self, topic: str, partition: int) -> bool:
        """Return whether this log is in one of the directories, open or not."""
        return (topic, partition) in self._found

    def open_log(self, topic: str, partition: int, settings: LogSettings, *, refuse_record_loss: bool = False) -> Log:
        """Open a log of `list_logs()`. Raises `LogDirectoryError`, with `refuse_record_loss` also for lost records."""
        return self._found[topic, partition].open_log(topic, partition, settings, refuse_record_loss=refuse_record_loss)

    def describe_unopened_log(self, topic: str, partition: int) -> tuple[str, bytes, int]:
        """Return (directory, topic id, bytes of records) of a log of `list_logs()`, open or not. Zeros stand for no id.

        Raises `LogDirectoryError`.
        """
        return self._found[topic, partition].describe_unopened_log(topic, partition)

    def create_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        settings: LogSettings,
        *,
        paths_to_avoid: Container[str] = (),
    ) -> Log:
        """Create an empty log in the preferred directory, else in the one with the fewest logs.

        Of the paths in `paths_to_avoid`, none is chosen if there is another. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        allowed = [directory for directory in self.directories if directory.path not in paths_to_avoid]
        fewest = min(allowed or self.directories, key=lambda directory: len(directory.logs))
        directory = self._preferred.pop((topic, partition), fewest)
        try:
            log = directory.create_log(topic, partition, topic_id, settings)
        except LogDirectoryError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._found[topic, partition] = directory
        return log

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Store the topic id, 16 bytes, of a log that has none. Raises `LogDirectoryError`."""
        self.find_directory_of_log(log).assign_topic_id(log, topic_id)

    def delete_log(self, log: Log, unique_suffix: str) -> None:
        """Rename the log's directory at once, and remove its files after `file.delete.delay.ms`.

        `unique_suffix` is 32 hexadecimal digits. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        try:
            self._found[log.topic, log.partition].delete_log(log, unique_suffix)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log} cannot be deleted: {error}") from error
        del self._found[log.topic, log.partition]

    def rename_log_to_stray(self, topic: str, partition: int, unique_suffix: str) -> str:
        """Rename the directory of a stray log, which keeps its files. Return the new path.

        `unique_suffix` is 32 hexadecimal digits. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        try:
            path = self._found[topic, partition].rename_log_to_stray(topic, partition, unique_suffix)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is not renamed: {error}") from error
        del self._found[topic, partition]
        return path

    def find_directory_of_log(self, log: Log) -> LogDirectory:
        """Return the directory that contains the log."""
        return self._found[log.topic, log.partition]

    def write_checkpoints(self) -> None:
        """Write the offset checkpoints of all directories. Raises `OSError`."""
        for directory in self.directories:
            directory.write_checkpoints()

    def write_checkpoint_soon(self, name: str) -> None:
        """Write one of the offset checkpoints, by its file's name, in all directories, in another thread."""
        for directory in self.directories:
            directory.write_checkpoint_soon(name)

    def close(self) -> None:
        """Flush and close everything, and write the markers of a clean stop. Raises `KafkaError`, `OSError`."""
        closings = [partial(directory.close, broker_epoch=self.broker_epoch) for directory in self.directories]
        for failure in [error for error in map(run_and_return_error, closings) if error is not None]:
            raise failure

    def close_without_checkpoints(self) -> None:
        """Close all files as they are, as a crash would."""
        for directory in self.directories:
            directory.close_without_checkpoints()

    # --- moving logs from one directory to another --------------------------------------------------

    def set_preferred_directory(self, topic: str, partition: int, directory: LogDirectory) -> None:
        """Choose the directory of a log that does not exist yet. Only `MAXIMUM_PREFERRED` newest choices are kept."""
        self._preferred.pop((topic, partition), None)
        if len(self._preferred) >= MAXIMUM_PREFERRED:
            del self._preferred[next(iter(self._preferred))]
        self._preferred[topic, partition] = directory

    def list_interrupted_moves(self) -> list[tuple[TopicPartition, LogDirectory]]:
        """Return the moves that the last stop has interrupted: (topic, partition) and target. They must begin again."""
        return [
            (key, directory) for key, directory in self._interrupted if self._found.get(key) not in (None, directory)
        ]

    def replace_log_by_copy(
        self, log_copy: LogCopy, target: LogDirectory, settings: LogSettings, unique_suffix: str
    ) -> Log:
        """Replace a log by its complete copy in `target`. Return the new log.

        `unique_suffix` is 32 hexadecimal digits. Raises `OSError`, and then nothing has changed, or
        `LogDirectoryError` if the log was moved, but cannot be opened.
        """
        old = log_copy.log
        key = old.topic, old.partition
        source = self._found[key]
        path = target.rename_copy_to_log(log_copy)
        try:
            source.delete_log(old, unique_suffix)
        except OSError:
            self.disk.rename(path, log_copy.path)
            raise
        self._found[key] = target
        return target.open_log_from_copy(log_copy, settings)

    def finish_log_move(self, source: LogDirectory, target: LogDirectory, log: Log, file_names: Iterable[str]) -> None:
        """Finish a move of `log`: sync its files of these names and the directories, and remove the move's marker.

        Slow: for another thread. Raises `OSError`.
        """
        for name in file_names:
            with suppress(FileNotFoundError):  # the log is in use, and may have removed it
                file = self.disk.open(f"{log.directory}/{name}")
                file.sync()
                file.close()
        self.disk.sync_directory(target.path)
        self.disk.sync_directory(source.path)
        self.disk.remove(f"{log.directory}/{MOVED_MARKER}")

    def _find_logs_and_interrupted_moves(
        self,
    ) -> tuple[dict[TopicPartition, LogDirectory], dict[TopicPartition, LogDirectory]]:
        """Return the directory of each log, and that of its old copy, which a crash right after a move leaves."""
        located: dict[TopicPartition, LogDirectory] = {}
        older: dict[TopicPartition, LogDirectory] = {}
        for directory in self.directories:
            for key in directory.list_logs():
                other = located.get(key)
                if other is None:
                    located[key] = directory
                elif key not in older and other.has_moved_log(key) != directory.has_moved_log(key):
                    located[key], older[key] = (other, directory) if other.has_moved_log(key) else (directory, other)
                else:
                    raise LogDirectoryError(f"{key[0]}-{key[1]} lies both in {other.path} and in {directory.path}")
        return located, older

    def _finish_interrupted_moves(self, older_directories: dict[TopicPartition, LogDirectory]) -> None:
        """Finish the moves that had replaced their logs, and remember the others. Raises `LogDirectoryError`."""
        try:
            for key, directory in self._found.items():
                if directory.has_moved_log(key):
                    directory.finish_interrupted_move(key, older_directories.get(key))
            for directory in self.directories:
                self._interrupted += [(key, directory) for key in directory.remove_future_logs()]
        except OSError as error:
            raise LogDirectoryError(f"a log that was moved is left in two directories: {error}") from error
