"""Three faults of each kind that `verify` knows, planted at different places of a log that was clean.

Each function writes a directory, damages it, and tells where the findings of its kind must point to: (file, position).
Nothing here tests anything.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from minibroker.protocol.records.crc import crc32c
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import (
    format_leader_epochs,
    format_offset_checkpoint,
    format_partition_metadata,
)
from tests.pipeline.verifying.metadata_logs import metadata, topic
from tests.pipeline.verifying.support import (
    INT16,
    INT32,
    INT64,
    Place,
    Writer,
    change,
    places,
    put_bytes,
    remove_batches,
    spread,
    written,
)

Expected = set[tuple[str, int]]
Fault = Callable[[Path], Expected]
FAULTS: dict[str, Fault] = {}

LENGTH, LEADER_EPOCH, MAGIC, ATTRIBUTES, LAST_DELTA, MAX_TIMESTAMP = 8, 12, 16, 22, 23, 35
PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT, RECORDS = 43, 51, 53, 57, 61
INDEX_ENTRY, TIME_ENTRY, TRANSACTION_ENTRY = 8, 12, 34
SNAPSHOT_HEAD, SNAPSHOT_ENTRY = 10, 46


def fault(kind: str) -> Callable[[Fault], Fault]:
    """Registers a function as the one that plants this kind."""

    def register(function: Fault) -> Fault:
        FAULTS[kind] = function
        return function

    return register


def where(found: list[Place]) -> Expected:
    """Name and position of each batch."""
    return {(place.file.name, place.position) for place in found}


def plain(directory: Path) -> list[Place]:
    """The batches of three records without a producer id, in a log with everything."""
    return [place for place in places(written(directory)) if place.header.record_count == 3]


def not_first(found: list[Place]) -> list[Place]:
    """Return the places that do not begin a file."""
    return [place for place in found if place.position > 0]


def three(directory: Path) -> list[Place]:
    """Three of them, none of which begins a file."""
    return spread(not_first(plain(directory)))


def files(path: Path, suffix: str, minimum_bytes: int = 1) -> list[Path]:
    """Three closed segments' files with this suffix and as much in them."""
    bases = sorted(file.stem for file in path.glob("*.log"))[:-1]
    found = [path / (base + suffix) for base in bases]
    return [file for file in found if file.exists() and file.stat().st_size >= minimum_bytes][1:4]


# --- layout and records -----------------------------------------------------------------------------------


@fault("length")
def lengths(directory: Path) -> Expected:
    found = three(directory)
    lengths = 7, found[1].header.batch_length + 13, 0x7FFFFFFF
    for place, length in zip(found, lengths, strict=True):
        put_bytes(place.file, place.position + LENGTH, INT32.pack(length))
    return where(found)


@fault("magic")
def magics(directory: Path) -> Expected:
    found = three(directory)
    for place, magic in zip(found, (3, 200, 1), strict=True):
        put_bytes(place.file, place.position + MAGIC, bytes((magic,)))
    return where(found)


@fault("torn-tail")
def torn_tails(directory: Path) -> Expected:
    by_file = {place.file: place for place in plain(directory)}
    last = {place.file: place for place in places(directory / "orders-0")}
    chosen = [last[file] for file in sorted(by_file)]
    found = [chosen[2], chosen[5], chosen[-1]]
    for place, left in zip(found, (3, 40, place_size(found[2]) - 1), strict=True):
        with place.file.open("r+b") as file:
            file.truncate(place.position + left)
    return where(found)


def place_size(place: Place) -> int:
    return place.header.size_bytes


@fault("crc")
def checksums(directory: Path) -> Expected:
    found = three(directory)
    for place, at in zip(found, (RECORDS + 5, PRODUCER_ID, place_size(found[2]) - 1), strict=True):
        byte = place.file.read_bytes()[place.position + at]
        put_bytes(place.file, place.position + at, bytes((byte ^ 0x10,)))
    return where(found)


@fault("header")
def headers(directory: Path) -> Expected:
    found = three(directory)
    change(found[0], COUNT, INT32.pack(4))
    change(found[1], PRODUCER_ID, INT64.pack(-5))
    change(found[2], PRODUCER_EPOCH, INT16.pack(3))
    return where(found)


@fault("codec")
def codecs(directory: Path) -> Expected:
    found = three(directory)
    for place, codec in zip(found, (7, 1, 4), strict=True):
        change(place, ATTRIBUTES, bytes((codec,)))
    return where(found)


@fault("record")
def records(directory: Path) -> Expected:
    found = three(directory)
    for place, at, byte in zip(found, (0, 4, 1 + record_length(found[2]) - 1), (0x7E, 0x70, 0x08), strict=True):
        change(place, RECORDS + at, bytes((byte,)))
    return where(found)


def record_length(place: Place) -> int:
    return place.file.read_bytes()[place.position + RECORDS] >> 1


@fault("record-count")
def record_counts(directory: Path) -> Expected:
    found = three(directory)
    for place, count in zip(found, (2, 1, 0), strict=True):
        change(place, COUNT, INT32.pack(count))
    return where(found)


@fault("record-offset")
def record_offsets(directory: Path) -> Expected:
    found = three(directory)
    for place, delta in zip(found, (0, 2, 50), strict=True):
        second = RECORDS + 1 + record_length(place)
        change(place, second + 3, bytes((delta << 1,)))
    return where(found)


@fault("max-timestamp")
def largest_timestamps(directory: Path) -> Expected:
    found = three(directory)
    for place, by in zip(found, (1, -1, 1 << 40), strict=True):
        change(place, MAX_TIMESTAMP, INT64.pack(place.header.max_timestamp + by))
    return where(found)


# --- offsets and leader epochs -----------------------------------------------------------------------------------


@fault("below-segment")
def below_segments(directory: Path) -> Expected:
    first = [place for place in places(written(directory)) if place.position == 0][2:7:2]
    for place in first:
        put_bytes(place.file, 0, INT64.pack(place.header.base_offset - 1))
    return where(first)


@fault("segment-overlap")
def segment_overlaps(directory: Path) -> Expected:
    return below_segments(directory)


@fault("offset-order")
def orders(directory: Path) -> Expected:
    found = spread([place for place in plain(directory) if place.position > 600])
    for place, by in zip(found, (4, 5, 6), strict=True):
        put_bytes(place.file, place.position, INT64.pack(place.header.base_offset - by))
    return where(found)


@fault("overlap")
def overlaps(directory: Path) -> Expected:
    everything = places(written(directory))
    behind = [b for a, b in zip(everything, everything[1:], strict=False) if a.header.record_count > 1 and b.position]
    found = spread(behind)
    for place in found:
        put_bytes(place.file, place.position, INT64.pack(place.header.base_offset - 1))
    return where(found)


@fault("gap")
def gaps(directory: Path) -> Expected:
    everything = places(written(directory))
    by_file = sorted({place.file for place in everything})
    inner = [a for a, b in zip(everything, everything[1:], strict=False) if a.position and a.file == b.file]
    gone = [next(place for place in inner if place.file == by_file[number]) for number in (1, 3)]
    expected = where(gone)  # where the batch behind it comes to lie
    remove_batches(gone)
    for file in by_file[6].parent.glob(f"{by_file[6].stem}.*"):
        file.unlink()
    return expected | {(by_file[7].name, 0)}


@fault("leader-epoch-regression")
def leader_epochs(directory: Path) -> Expected:
    writer = Writer(directory)
    for _ in range(60):
        writer.write(3, leader_epoch=5)  # type: ignore[arg-type]
    found = spread(not_first(places(writer.close())))
    for place, epoch in zip(found, (0, 3, 4), strict=True):
        put_bytes(place.file, place.position + LEADER_EPOCH, INT32.pack(epoch))
    return where(found)


@fault("leader-epoch-checkpoint")
def leader_epoch_checkpoint(directory: Path) -> Expected:
    """The file has three epochs that begin elsewhere in the log."""
    writer = Writer(directory)
    for epoch in range(5):
        for _ in range(5):
            writer.write(2, leader_epoch=epoch)  # type: ignore[arg-type]
    path = writer.close()
    text = format_leader_epochs([(0, 0), (1, 8), (2, 20), (3, 33), (4, 45)])
    (path / "leader-epoch-checkpoint").write_bytes(text)
    return {("leader-epoch-checkpoint", -1)}


@fault("leader-epoch-late")
def late_epochs(directory: Path) -> Expected:
    """In three partitions of a killed broker the file begins behind the log."""
    path = written(directory, 2)
    for number in range(3):
        if number:
            shutil.copytree(path, directory / f"orders-{number}")
        (directory / f"orders-{number}" / "leader-epoch-checkpoint").write_bytes(format_leader_epochs([(0, 3)]))
    return {("leader-epoch-checkpoint", -1)}


@fault("log-start")
def lost_first_segments(directory: Path) -> Expected:
    """Three partitions have lost their first segments, with all that belongs to them."""
    path = written(directory)
    bases = [file.stem for file in sorted(path.glob("*.log"))]
    for number in (1, 2):
        shutil.copytree(path, directory / f"orders-{number}")
    for number in range(3):
        for base in bases[: number + 1]:
            for file in (directory / f"orders-{number}").glob(f"{base}.*"):
                file.unlink()
    return {(f"{bases[number]}.log", -1) for number in (1, 2, 3)}


@fault("meta-properties")
def identities(directory: Path) -> Expected:
    """The file says of which cluster and node the directory is; here it lacks both, and has no directory's id."""
    written(directory, 2)
    (directory / "meta.properties").write_text("version=1\ndirectory.id=short\n")
    return {("meta.properties", -1)}


@fault("partition-unknown")
def unknown_partitions(directory: Path) -> Expected:
    path = written(directory, 2)
    metadata(directory, topic("others"))
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for number in (1, 2):
        shutil.copytree(path, directory / f"orders-{number}")
    return {("partition.metadata", -1)}


@fault("partition-missing")
def partitions_missing(directory: Path) -> Expected:
    written(directory, 2)
    gone = {("orders", number): number for number in (1, 2, 7)}
    (directory / "recovery-point-offset-checkpoint").write_bytes(format_offset_checkpoint(gone))
    return {("recovery-point-offset-checkpoint", -1)}


# --- snapshots and checkpoints -----------------------------------------------------------------------------------


@fault("snapshot")
def snapshots(directory: Path) -> Expected:
    """A checksum, a version, and a file that is cut off."""
    one, two, three = files(written(directory), ".snapshot", SNAPSHOT_HEAD + SNAPSHOT_ENTRY)
    put_bytes(one, SNAPSHOT_HEAD + 3, b"\xff")
    put_bytes(two, 0, INT16.pack(9))
    three.write_bytes(three.read_bytes()[:-5])
    return {(file.name, 0) for file in (one, two, three)}


@fault("snapshot-state")
def snapshot_states(directory: Path) -> Expected:
    """Another epoch, another sequence, another open transaction, under right checksums."""
    found = files(written(directory), ".snapshot", SNAPSHOT_HEAD + SNAPSHOT_ENTRY)
    for file, (at, data) in zip(found, ((8, INT16.pack(8)), (10, INT32.pack(3)), (38, INT64.pack(5))), strict=True):
        body = bytearray(file.read_bytes())
        body[SNAPSHOT_HEAD + at : SNAPSHOT_HEAD + at + len(data)] = data
        body[2:6] = crc32c(bytes(body[6:])).to_bytes(4, "big")
        file.write_bytes(body)
    return {(file.name, SNAPSHOT_HEAD) for file in found}


@fault("snapshot-missing")
def snapshots_missing(directory: Path) -> Expected:
    path = written(directory)
    bases = [file.stem for file in sorted(path.glob("*.log"))]
    found = [path / f"{base}.snapshot" for base in bases[3:6]]
    for file in found:
        file.unlink()
    return {(file.name, -1) for file in found}


@fault("txnindex-count")
def transactions_counted(directory: Path) -> Expected:
    """Three rows have other counts, or checksums, than the files."""
    path = written(directory)
    file = path / "aborted-transactions-checkpoint"
    version, count, *rows = file.read_text().splitlines()
    rows[0], rows[1], rows[2] = f"{rows[0]}1", f"{rows[1]}2", f"{rows[2]}3"
    file.write_text("\n".join((version, count, *rows, "")))
    return {(file.name, -1)}


@fault("partition-metadata")
def partition_metadata(directory: Path) -> Expected:
    """Of six partitions, one has a file that cannot be read, two have other topics' ids."""
    right = format_partition_metadata(bytes(15) + b"\2")
    path = written(directory, 2)
    texts = [
        right,
        right,
        right,
        format_partition_metadata(b"\1" * 16),
        format_partition_metadata(b"\3" * 16),
        right[:-3],
    ]
    for number, text in enumerate(texts):
        if number:
            shutil.copytree(path, directory / f"orders-{number}")
        (directory / f"orders-{number}" / "partition.metadata").write_bytes(text)
    return {("partition.metadata", -1)}


@fault("snapshot-beyond-log")
def snapshots_beyond(directory: Path) -> Expected:
    path = written(directory)
    newest = sorted(path.glob("*.snapshot"))[-1]
    found = [path / f"{int(newest.stem) + by:020d}.snapshot" for by in (1, 50, 10**9)]
    for file in found:
        shutil.copy(newest, file)
    return {(file.name, -1) for file in found}


@fault("checkpoint")
def checkpoints(directory: Path) -> Expected:
    written(directory)
    texts = {
        "recovery-point-offset-checkpoint": b"7\n1\norders 0 3\n",
        "replication-offset-checkpoint": b"0\n5\norders 0 3\n",
        "log-start-offset-checkpoint": b"0\n1\norders 0 many\n",
    }
    for name, text in texts.items():
        (directory / name).write_bytes(text)
    return {(name, -1) for name in texts}


@fault("checkpoint-beyond-log")
def checkpoints_beyond(directory: Path) -> Expected:
    written(directory)
    names = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")
    for number, name in enumerate(names):
        (directory / name).write_bytes(format_offset_checkpoint({("orders", 0): 100_000 + number}))
    return {(name, -1) for name in names}


# --- compaction -----------------------------------------------------------------------------------


def cleaned(directory: Path, wrong: Callable[[int], list[Record]]) -> Expected:
    """Where in a log of many keys, which counts as cleaned, three batches lie that must not be there."""
    writer = Writer(directory)
    offsets = []
    for number in range(60):
        writer.put([Record(timestamp=writer.now_ms, key=b"key %d" % number, value=b"value")])
        if number in (20, 30, 40):
            offsets.append(writer.put(wrong(number)))
    path = writer.close()
    (directory / "cleaner-offset-checkpoint").write_bytes(
        format_offset_checkpoint({("orders", 0): writer.log.log_end_offset})
    )
    return where([place for place in places(path) if place.header.base_offset in offsets])


@fault("duplicate-key")
def duplicate_keys(directory: Path) -> Expected:
    """Keys of long before come again: the finding is at their first place."""
    cleaned(directory, lambda number: [Record(timestamp=1, key=b"key %d" % (number - 10), value=b"newer")])
    keys = (10, 20, 30)
    found = [place for place in places(directory / "orders-0") if place.header.record_count == 1]
    data = {place: place.file.read_bytes()[place.position :][: place.header.size_bytes] for place in found}
    first = [next(place for place in found if b"key %d" % key + b"\nvalue" in data[place]) for key in keys]
    return where(first)


@fault("keyless-record")
def keyless_records(directory: Path) -> Expected:
    return cleaned(directory, lambda number: [Record(timestamp=1, value=b"no key")])


@fault("tombstone-horizon")
def tombstones(directory: Path) -> Expected:
    return cleaned(directory, lambda number: [Record(timestamp=1, key=b"gone %d" % number)])
