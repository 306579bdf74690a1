"""Records that a reader writes as lines of text, as the batch or the messages that a version of Produce carries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record

FIRST_VERSION_OF_FORMAT_1: Final = 2  # of Produce
FIRST_VERSION_OF_FORMAT_2: Final = 3
FORMAT_2: Final = 2
NO_PRODUCER: Final = (-1, -1, -1)  # id, epoch, sequence
DIRECTIVES: Final = (
    "a line that begins with @ is @producer ID EPOCH SEQUENCE, @transactional, @compress CODEC or @tombstone KEY"
)


@dataclass
class _ComposedLines:
    """What the lines say about the whole batch, and its records."""

    now_ms: int
    records: list[Record] = field(default_factory=list)
    producer: tuple[int, ...] = NO_PRODUCER
    is_transactional: bool = False
    compression: Compression = Compression.NONE

    def add_line(self, line: str) -> None:
        """Take a line in. Raises ValueError."""
        match line.split():
            case ["@producer", *numbers] if len(numbers) == len(self.producer):
                self.producer = tuple(map(int, numbers))
            case ["@transactional"]:
                self.is_transactional = True
            case ["@compress", codec] if codec.upper() in Compression.__members__:
                self.compression = Compression[codec.upper()]
            case ["@tombstone", key]:
                self._append_record(key, None)
            case [word, *_] if word.startswith("@"):
                raise ValueError(DIRECTIVES)
            case _:
                key, equals, value = line.partition("=")
                self._append_record(key if equals else None, value if equals else key)

    def _append_record(self, key: str | None, value: str | None) -> None:
        encoded_key, encoded_value = (None if each is None else each.encode() for each in (key, value))
        self.records.append(Record(len(self.records), self.now_ms, encoded_key, encoded_value, ()))


def get_message_format_of_produce(version: int) -> int:
    """Return the format of the records that a version of Produce carries."""
    if version >= FIRST_VERSION_OF_FORMAT_2:
        return FORMAT_2
    return int(version >= FIRST_VERSION_OF_FORMAT_1)


def compose_records(text: str, now_ms: int, magic: int) -> memoryview:
    """Return the records of some lines in a format: a line for each, as `key=value` or `value`. Raises ValueError.

    A line with `@` says who writes, that it is in a transaction, how it is compressed, or which key has no value any
    more. `hex:` and digits are the bytes themselves.
    """
    if text.startswith("hex:"):
        return memoryview(bytes.fromhex(text.removeprefix("hex:")))
    said = _ComposedLines(now_ms)
    for line in text.splitlines():
        said.add_line(line)
    if not said.records:
        return memoryview(b"")
    if magic < FORMAT_2:
        if said.producer != NO_PRODUCER or said.is_transactional:
            raise ValueError(f"messages of format {magic} have no producer and no transaction: use Produce 3 or newer")
        return memoryview(build_message_set(said.records, magic, compression=said.compression))
    producer_id, epoch, sequence = said.producer
    batch = build_batch(
        said.records,
        compression=said.compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=said.is_transactional,
    )
    return memoryview(batch)
