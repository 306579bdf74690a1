"""All directories of `log.dirs` together: opened as one, and a new log goes to the one with the fewest.

What happens inside one of them is told in `log_directory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.checkpoints import TopicPartition
from minibroker.storage.flushing import attempt
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_directory import LogDirectory
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery import LogDirectoryError


class LogDirectories:
    """The logs of one broker. `cluster_id` is the one found in the directories, or else the one given or made.

    `new_id` makes ids of Kafka's kind: 22 characters of base64url, none at the start being a dash. `broker_epoch` is
    what the marker of a clean stop is to name, None for the same as last time.
    """

    def __init__(
        self,
        environment: Environment,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None,
        new_id: Callable[[], str],
    ) -> None:
        """Open them all. Raises `LogDirectoryError`, and then holds none of them and has changed nothing."""
        for path in paths:
            if paths.count(path) > 1:
                raise LogDirectoryError(f"log directory {path} is listed twice")
        self.disk = environment.disk
        self.broker_epoch: int | None = None
        self.directories = [LogDirectory(environment, path) for path in paths]
        try:
            found = [cluster for directory in self.directories if (cluster := directory.lock())]
            self.cluster_id = cluster_id or (found[0] if found else new_id())
            for directory in self.directories:
                directory.check_identity(node_id, self.cluster_id)
            self._found = self._locate()
            for directory in self.directories:
                directory.open(node_id, self.cluster_id, new_id)
        except BaseException:
            for directory in self.directories:
                directory.unmake()
            raise

    @property
    def clean(self) -> bool:
        """Whether all directories were left by a clean stop."""
        return all(directory.clean for directory in self.directories)

    def found(self) -> list[TopicPartition]:
        """The (topic, partition) of each log that is on the disks, open or not."""
        return list(self._found)

    def holds(self, topic: str, partition: int) -> bool:
        """Whether this log is on the disks, open or not."""
        return (topic, partition) in self._found

    def open_log(self, topic: str, partition: int, settings: LogSettings) -> Log:
        """Open a log that is in `found()`. Raises `LogDirectoryError`."""
        return self._found[topic, partition].open_log(topic, partition, settings)

    def create_log(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings) -> Log:
        """Make an empty log in the directory with the fewest. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        directory = min(self.directories, key=lambda directory: len(directory.logs))
        try:
            log = directory.create_log(topic, partition, topic_id, settings)
        except LogDirectoryError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._found[topic, partition] = directory
        return log

    def assign_topic_id(self, log: Log, topic_id: bytes) -> None:
        """Give a log the id of its topic, 16 bytes, which it does not know. Raises `LogDirectoryError`."""
        self.directory_of(log).assign_topic_id(log, topic_id)

    def delete_log(self, log: Log, unique: str) -> None:
        """Make the log's name free at once; its files go after `file.delete.delay.ms`.

        `unique` is 32 hexadecimal digits. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        try:
            self._found[log.topic, log.partition].delete_log(log, unique)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log} cannot be deleted: {error}") from error
        del self._found[log.topic, log.partition]

    def set_aside(self, topic: str, partition: int, unique: str) -> str:
        """Keep the files of a log that nobody asks for under another name; their directory then.

        `unique` is 32 hexadecimal digits. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        try:
            path = self._found[topic, partition].set_aside(topic, partition, unique)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} stays: {error}") from error
        del self._found[topic, partition]
        return path

    def directory_of(self, log: Log) -> LogDirectory:
        """The directory that the log lies in."""
        return self._found[log.topic, log.partition]

    def write_checkpoints(self) -> None:
        """Write the offset checkpoints of all directories. Raises `OSError`."""
        for directory in self.directories:
            directory.write_checkpoints()

    def write_checkpoint_soon(self, name: str) -> None:
        """Have one of the offset checkpoints, by its file's name, written in all directories by another thread."""
        for directory in self.directories:
            directory.write_checkpoint_soon(name)

    def close(self) -> None:
        """Flush and close everything and attest a clean stop. Raises `KafkaError`, `OSError`."""
        closings = [partial(directory.close, broker_epoch=self.broker_epoch) for directory in self.directories]
        for failure in [error for error in map(attempt, closings) if error is not None]:
            raise failure

    def abandon(self) -> None:
        """Let go of everything as it is, as a crash would."""
        for directory in self.directories:
            directory.abandon()

    def _locate(self) -> dict[TopicPartition, LogDirectory]:
        located: dict[TopicPartition, LogDirectory] = {}
        for directory in self.directories:
            for key in directory.found():
                if key in located:
                    raise LogDirectoryError(
                        f"{key[0]}-{key[1]} lies both in {located[key].path} and in {directory.path}"
                    )
                located[key] = directory
        return located
