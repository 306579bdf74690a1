"""What the tests ask of every client, so that one test runs with all of them.

How a library does it is in the file of its name; a test that needs a library's own features uses the library itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

# Far beyond what any step takes on a loaded machine: only what hangs gets there.
PATIENCE_S = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Record(NamedTuple):
    """A record as a client gives it away and gets it back."""

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_000


class Producer(Protocol):
    """A producer that is started."""

    def send(self, topic: str, records: Sequence[Record], partition: int = 0) -> list[int]:
        """Send the records together; the offsets that they were given, which nobody knows with acks 0.

        Raises the library's own error.
        """


class Read(NamedTuple):
    """A record that a consumer read, and where it was."""

    partition: int
    offset: int
    record: Record


class Consumer(Protocol):
    """A consumer that is assigned some partitions of one topic."""

    def read(self, count: int) -> list[Read]:
        """The next `count` records, waiting for them."""

    def seek(self, offset: int, partition: int = 0) -> None:
        """Begin the next read at `offset`."""

    def offsets(self, partition: int = 0) -> tuple[int, int]:
        """The partition's first offset, and the next one to be given out."""

    def offset_at(self, timestamp_ms: int, partition: int = 0) -> int | None:
        """The offset of the first record with at least this timestamp."""


class Admin(Protocol):
    """An admin client that is started. Raises the library's own errors."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def delete_topic(self, name: str) -> None: ...

    def add_partitions(self, name: str, total: int) -> None: ...

    def topics(self) -> list[str]: ...

    def config(self, topic: str) -> Mapping[str, str]:
        """The topic's configs, as text by name."""


class Client(Protocol):
    """A client library."""

    name: str

    def can_write(self, record: Record) -> bool:
        """Whether its producer takes such a record."""

    def producer(
        self,
        servers: str,
        *,
        codec: str = "none",
        acks: int | str = "all",
        idempotent: bool = False,
        limit_bytes: int = 1_000_000,
    ) -> AbstractContextManager[Producer]:
        """`limit_bytes` is how large a request the producer itself lets pass."""

    def consumer(
        self,
        servers: str,
        topic: str,
        partitions: Sequence[int] = (0,),
        *,
        offset: int | None = None,
        wait_ms: int = 500,
    ) -> AbstractContextManager[Consumer]:
        """It begins at `offset`, or with the first records; a fetch waits at the broker for `wait_ms`."""

    def admin(self, servers: str) -> AbstractContextManager[Admin]: ...

    def error_code(self, error: Exception) -> int:
        """The broker's error code in an exception of the library."""
