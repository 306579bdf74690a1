"""Apache Kafka's DumpLogSegments reads the files of a log that we wrote, and finds in them what we put there.

No broker runs: a log of several segments, codecs, producers and leader epochs is written, and stopped cleanly.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.kafka_tools import run_tool
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.files import Disk
from minibroker.storage.log import Environment, Log
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import Checkpoints, open_log

NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=1000)
TOOL = "org.apache.kafka.tools.DumpLogSegments"
Fields = dict[str, str]


def open_at(directory: Path) -> Log:
    environment = Environment(Disk(), lambda: NOW_MS, lambda delay_ms, callback: None)
    return open_log(environment, str(directory), ("orders", 0), SETTINGS, Checkpoints(clean=True))


def write(log: Log, batches: int, source: random.Random) -> None:
    """Batches of one to five records by two producers and none, whose times mostly rise."""
    sequences = {-1: -1, 7: 0, 8: 0}
    now_ms = NOW_MS
    for number in range(batches):
        producer, count = source.choice(list(sequences)), source.randint(1, 5)
        now_ms += source.randint(-5, 20)
        records = [
            Record(
                timestamp=now_ms + source.randint(-3, 3), key=source.choice([None, b"k"]), value=source.randbytes(40)
            )
            for _ in range(count)
        ]
        data = build_batch(
            records,
            compression=number % 5,
            producer_id=producer,
            producer_epoch=2 if producer > 0 else -1,
            base_sequence=sequences[producer],
        )
        if producer > 0:
            sequences[producer] += count
        log.append(data, (check_batch(data),), leader_epoch=number * 3 // batches)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a log that was written, and stopped cleanly."""
    path = tmp_path_factory.mktemp("dump") / "orders-0"
    path.mkdir()
    log = open_at(path)
    write(log, 300, random.Random(1))
    log.close()
    return path


@pytest.fixture(scope="module")
def dump(directory: Path) -> Callable[..., dict[str, list[str]]]:
    """Runs the tool on all files with a suffix; the lines it prints, by file."""

    def run(suffix: str, *options: str) -> dict[str, list[str]]:
        files = ",".join(str(path) for path in sorted(directory.glob(f"*{suffix}")))
        output = run_tool(TOOL, "--files", files, *options).out
        parts = re.split(r"^Dumping (.*)\n", output, flags=re.MULTILINE)[1:]
        return {Path(name).name: text.splitlines() for name, text in zip(parts[::2], parts[1::2], strict=True)}

    return run


def fields(line: str) -> Fields:
    """The `name: value` pairs of a line."""
    return dict(re.findall(r"(\w+): (\S+)", line))


def test_kafkas_tool_finds_every_batch_valid_and_as_it_was_produced(directory: Path, dump) -> None:  # type: ignore[no-untyped-def]
    log = open_at(directory)
    dumped = dump(".log", "--deep-iteration")
    assert len(dumped) == len(log.segments) > 2
    for segment in log.segments:
        name = f"{segment.base_offset:020d}.log"
        batches = [fields(line) for line in dumped[name] if line.startswith("baseOffset")]
        position = 0
        for found in batches:
            header = check_batch(segment.file.read(position, 1 << 20)[: int(found["size"])])
            assert found["isvalid"] == "true"
            assert int(found["position"]) == position
            assert int(found["baseOffset"]) == header.base_offset
            assert int(found["lastOffset"]) == header.last_offset
            assert int(found["lastSequence"]) == header.last_sequence
            assert int(found["producerId"]) == header.producer_id
            assert int(found["partitionLeaderEpoch"]) == header.partition_leader_epoch
            assert int(found["CreateTime"]) == header.max_timestamp
            position += header.size_bytes
        assert position == segment.size_bytes
        offsets = [int(fields(line)["offset"]) for line in dumped[name] if line.startswith("| offset")]
        assert offsets == list(range(segment.base_offset, int(batches[-1]["lastOffset"]) + 1))


def test_dumped_offset_indexes_are_valid_and_equal_ours(directory: Path, dump) -> None:  # type: ignore[no-untyped-def]
    log = open_at(directory)
    for lines in dump(".index", "--index-sanity-check").values():
        assert all("passed sanity check" in line for line in lines)
    for lines in dump(".index", "--verify-index-only").values():
        assert lines == []
    for name, lines in dump(".index").items():
        segment = next(segment for segment in log.segments if name.startswith(f"{segment.base_offset:020d}"))
        segment.load_last_entries()
        segment.indexes.load_entries()
        entries = [fields(line) for line in lines]
        assert [
            (int(entry["offset"]), int(entry["position"])) for entry in entries
        ] == segment.indexes.offsets.list_entries()


def test_dumped_time_indexes_are_valid_and_equal_ours(directory: Path, dump) -> None:  # type: ignore[no-untyped-def]
    log = open_at(directory)
    for lines in dump(".timeindex", "--index-sanity-check").values():
        assert all("passed sanity check" in line for line in lines)
    for lines in dump(".timeindex", "--verify-index-only").values():
        assert lines == []
    for name, lines in dump(".timeindex").items():
        segment = next(segment for segment in log.segments if name.startswith(f"{segment.base_offset:020d}"))
        segment.load_last_entries()
        segment.indexes.load_entries()
        entries = [fields(line) for line in lines]
        assert [
            (int(entry["timestamp"]), int(entry["offset"])) for entry in entries
        ] == segment.indexes.times.list_entries()


def test_dumped_producer_snapshots_equal_the_producer_state(directory: Path, dump) -> None:  # type: ignore[no-untyped-def]
    log = open_at(directory)
    dumped = dump(".snapshot")
    assert len(dumped) == len(log.segments)
    producers = {
        int(found["producerId"]): found for found in map(fields, dumped[f"{log.log_end_offset:020d}.snapshot"])
    }
    known = dict(log.producers.iterate_entries())
    assert set(producers) == set(known) == {7, 8}
    for producer, entry in known.items():
        first_sequence, last_sequence, last_offset, delta, timestamp = entry.batches[-1]
        found = producers[producer]
        assert (int(found["firstSequence"]), int(found["lastSequence"])) == (first_sequence, last_sequence)
        assert (int(found["lastOffset"]), int(found["offsetDelta"])) == (last_offset, delta)
        assert (int(found["producerEpoch"]), int(found["timestamp"])) == (2, timestamp)
