"""Faults in producers' sequences, transactions and the transaction index of a clean log, three of each kind.

How they are registered and where they are looked for is in `faults`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import Struct

from tests.pipeline.verifying.faults import (
    ATTRIBUTES,
    PRODUCER_EPOCH,
    RECORDS,
    SEQUENCE,
    TRANSACTION_ENTRY,
    Expected,
    fault,
    files,
    where,
)
from tests.pipeline.verifying.support import (
    INT16,
    INT32,
    INT64,
    Place,
    Writer,
    change,
    places,
    put_bytes,
    spread,
    written,
)


def of_producer(directory: Path, producer_id: int = 1) -> list[Place]:
    """Three batches of one producer."""
    writer = Writer(directory)
    for _ in range(40):
        writer.write(3)
        writer.write(2, producer=1, epoch=4)
        writer.write(2, producer=2)
    found = places(writer.close())
    return spread([place for place in found if place.header.producer_id == producer_id])


@fault("epoch-regression")
def epoch_regressions(directory: Path) -> Expected:
    found = of_producer(directory)
    for place, epoch in zip(found, (3, 0, 1), strict=True):
        change(place, PRODUCER_EPOCH, INT16.pack(epoch))
    return where(found)


@fault("sequence-gap")
def sequence_gaps(directory: Path) -> Expected:
    found = of_producer(directory)
    for place, by in zip(found, (1, 10, 1 << 20), strict=True):
        change(place, SEQUENCE, INT32.pack(place.header.base_sequence + by))
    return where(found)


@fault("sequence-duplicate")
def sequence_duplicates(directory: Path) -> Expected:
    found = of_producer(directory)
    for place, by in zip(found, (1, 2, place_sequence(found[2])), strict=True):
        change(place, SEQUENCE, INT32.pack(place.header.base_sequence - by))
    return where(found)


def place_sequence(place: Place) -> int:
    return place.header.base_sequence


def markers(path: Path) -> list[Place]:
    """The control batches of a log."""
    return [place for place in places(path) if place.header.is_control]


@fault("control-batch")
def control_batches(directory: Path) -> Expected:
    """A key of an impossible version, a marker outside of a transaction, and a value that is too short."""
    found = spread(markers(written(directory)))
    key = RECORDS + 5
    change(found[0], key, INT16.pack(-1))
    change(found[1], ATTRIBUTES, bytes((0x20,)))
    change(found[2], key + 2, INT16.pack(-7))
    return where(found)


def appended(directory: Path, act: Callable[[Writer, int], object]) -> Expected:
    """Where the last batch lies that each of three acts has written, with other batches between them."""
    writer = Writer(directory)
    offsets = []
    for number in range(30):
        writer.write(3)
        writer.write(2, producer=1, transactional=True)
        writer.end(1, commit=True, coordinator_epoch=5)
        if number in (7, 14, 21):
            act(writer, number)
            offsets.append(writer.log.log_end_offset - 1)
    return where([place for place in places(writer.close()) if place.header.last_offset in offsets])


@fault("marker-without-transaction")
def lone_markers(directory: Path) -> Expected:
    return appended(directory, lambda writer, number: writer.end(1, commit=number == 7, coordinator_epoch=5))


@fault("coordinator-epoch")
def coordinator_epochs(directory: Path) -> Expected:
    def act(writer: Writer, number: int) -> None:
        writer.write(2, producer=1, transactional=True)
        writer.end(1, commit=True, coordinator_epoch=number % 5)

    return appended(directory, act)


@fault("outside-transaction")
def outside_transactions(directory: Path) -> Expected:
    def act(writer: Writer, number: int) -> None:
        writer.write(2, producer=number, transactional=True)
        writer.write(1)
        writer.write(2, producer=number)

    return appended(directory, act)


@fault("open-transaction")
def open_transactions(directory: Path) -> Expected:
    return appended(directory, lambda writer, number: writer.write(2, producer=number, transactional=True))


@fault("hanging-transaction")
def hanging_transactions(directory: Path) -> Expected:
    """Three are open, and the markers of others go on for 20 minutes behind them."""
    expected = appended(directory, lambda writer, number: writer.write(2, producer=number, transactional=True))
    writer = Writer(directory)
    writer.now_ms += 20 * 60 * 1000
    writer.write(2, producer=50, transactional=True)
    writer.end(50, commit=True)
    writer.close()
    return expected


def transaction_indexes(directory: Path) -> list[Path]:
    found = files(written(directory), ".txnindex", TRANSACTION_ENTRY)
    assert len(found) == 3
    return found


def in_transaction_indexes(directory: Path, change: Callable[[list[int], int], list[int]]) -> Expected:
    """The first entry of three files is what `change` makes of its fields."""
    entry = Struct(">hqqqq")
    expected = set()
    for number, file in enumerate(transaction_indexes(directory)):
        fields = list(entry.unpack_from(file.read_bytes(), 0))
        put_bytes(file, 0, entry.pack(*change(fields, number)))
        expected.add((file.name, 0))
    return expected


@fault("txnindex-entry")
def impossible_transactions(directory: Path) -> Expected:
    """A version, a first offset behind the last, and a marker of another segment."""

    def change(fields: list[int], number: int) -> list[int]:
        wrong = {0: (0, 9), 1: (2, fields[3] + 1), 2: (3, fields[3] + 5000)}[number]
        return [*fields[: wrong[0]], wrong[1], *fields[wrong[0] + 1 :]]

    return in_transaction_indexes(directory, change)


@fault("txnindex-missing")
def missing_transactions(directory: Path) -> Expected:
    """One file lacks its first entry, one its last, one is gone."""
    path = written(directory)
    found = [file for file in sorted(path.glob("*.txnindex")) if file.stat().st_size >= 2 * TRANSACTION_ENTRY]
    assert len(found) >= 3
    expected_offsets = []
    for number, file in enumerate(found[:3]):
        data = file.read_bytes()
        entries = [data[at : at + TRANSACTION_ENTRY] for at in range(0, len(data), TRANSACTION_ENTRY)]
        lost = entries[:1] if number == 0 else entries[-1:] if number == 1 else entries
        expected_offsets += [INT64.unpack_from(each, 18)[0] for each in lost]
        file.write_bytes(b"".join(each for each in entries if each not in lost))
        if number == 2:
            file.unlink()
    return where([place for place in places(path) if place.header.base_offset in expected_offsets])


@fault("txnindex-extra")
def extra_transactions(directory: Path) -> Expected:
    return in_transaction_indexes(directory, lambda fields, number: [fields[0], 77 + number, *fields[2:]])


@fault("txnindex-first-offset")
def first_offsets(directory: Path) -> Expected:
    return in_transaction_indexes(
        directory, lambda fields, number: [*fields[:2], fields[2] - 1 if number else fields[2] + 1, *fields[3:]]
    )


@fault("txnindex-stable-offset")
def stable_offsets(directory: Path) -> Expected:
    return in_transaction_indexes(directory, lambda fields, number: [*fields[:4], fields[4] + (number or -1)])
