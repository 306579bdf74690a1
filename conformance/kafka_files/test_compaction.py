"""Apache Kafka's cleaner and ours make the same of the same log, and each broker serves what the other has cleaned.

One directory is written without a cleaner, copied, and cleaned by each. Then the same again, on top of what Kafka has
cleaned, when the time of tombstones and markers is over. What remains is compared as Kafka's own tool prints it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from conformance.kafka_files.conftest import OUR_SETTINGS, complaints, copied
from conformance.kafka_files.contents import Topic, client, contents
from conformance.kafka_files.dumping import dump, fields
from conformance.kafka_files.scenario import FIRST_TIMESTAMP_MS, PATIENCE_S, SEGMENT, admin_of, done, wait_until
from conformance.kafka_files.test_there_and_back import objections
from conformance.kafka_reference import running_kafka
from conformance.spec import CODECS
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.running import running_broker

NO_CLEANER = {"log.cleaner.enable": "false"}
CLEANER = {"log.cleaner.backoff.ms": "100"}
COMPACT = {**SEGMENT, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
DELETE_RETENTION_MS = {"lasting": 86_400_000, "forgetful": 0}
CHECKPOINT = "cleaner-offset-checkpoint"
NOT_COMPARED = r"(position|size|batchSize|crc): \S+ ?"  # sizes: as two zlibs compress, or not
HORIZON = re.compile(r"deleteHorizonMs: OptionalLong\[\d+\]")
PRODUCER_SETTINGS = {"batch.num.messages": 10, "linger.ms": 100}

Start = Callable[[Path, dict[str, str]], AbstractContextManager[Any]]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Start:
    def start(logs: Path, properties: dict[str, str]) -> AbstractContextManager[Any]:
        return running_kafka(tmp_path_factory.mktemp("kafka"), properties, logs=logs)

    return start


@pytest.fixture(scope="module")
def minibroker(tmp_path_factory: pytest.TempPathFactory) -> Start:
    def start(logs: Path, properties: dict[str, str]) -> AbstractContextManager[Any]:
        settings = [*OUR_SETTINGS, *(f"{name}={value}" for name, value in properties.items()), f"log.dirs={logs}"]
        return running_broker(tmp_path_factory.mktemp("minibroker"), *settings)

    return start


# --- writing --------------------------------------------------------------------------------------


def write_keyed(servers: str, topic: str, *, seed: int) -> None:
    """Records of a few keys in all codecs, a tenth of them tombstones, from producers with and without ids."""
    source = random.Random(seed)
    for codec in CODECS:
        for idempotent in (False, True):
            settings = {"compression.type": codec, "enable.idempotence": idempotent, **PRODUCER_SETTINGS}
            producer = Producer(client(servers, **settings))
            produce(producer, topic, source, 150)
            assert producer.flush(PATIENCE_S) == 0


def write_transactions(servers: str, topic: str, *, seed: int) -> None:
    """Transactions of two producers, some of which are aborted."""
    source = random.Random(seed)
    for name in ("a", "b"):
        producer = Producer(client(servers, **{"transactional.id": f"{topic}-{name}", **PRODUCER_SETTINGS}))
        producer.init_transactions(PATIENCE_S)
        for number in range(6):
            producer.begin_transaction()
            produce(producer, topic, source, 25)
            assert producer.flush(PATIENCE_S) == 0  # or what is aborted would never be sent
            if number % 3:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)


def write_others(servers: str, topic: str) -> None:
    """So many records of one more key that all before are in closed segments."""
    producer = Producer(client(servers, **PRODUCER_SETTINGS))
    for _ in range(100):
        producer.produce(topic, bytes(400), b"other", 0)
    assert producer.flush(PATIENCE_S) == 0


def produce(producer: Producer, topic: str, source: random.Random, count: int) -> None:
    for _ in range(count):
        value = None if source.random() < 0.1 else source.randbytes(source.randrange(20, 60)).hex()
        producer.produce(topic, value, b"k%d" % source.randrange(60), 0)


# --- cleaning -------------------------------------------------------------------------------------


class Cleaned(NamedTuple):
    """A directory that was cleaned, what clients saw in it before and afterwards, and what the broker complained of."""

    path: Path
    before: dict[str, Topic]
    after: dict[str, Topic]
    complaints: list[str]


def cleaned(written: Path, before: dict[str, Topic], target: Path, start: Start, complained: Any) -> Cleaned:
    """Return what a broker's cleaner makes of a copy of a directory."""
    logs = copied(written, target)
    ends = {topic: newest_segment(logs, topic) for topic in before if not topic.startswith("__")}

    def is_done() -> bool:
        lines = (logs / CHECKPOINT).read_text().splitlines() if (logs / CHECKPOINT).exists() else []
        return all(f"{topic} 0 {end}" in lines for topic, end in ends.items())

    with start(logs, CLEANER) as broker:
        wait_until(is_done, f"a checkpoint with {ends}")
        after = contents(broker.bootstrap_servers)
        broker.stop()
        return Cleaned(logs, before, after, complained(broker))


def newest_segment(logs: Path, topic: str) -> int:
    """Where the segment begins that no cleaner touches."""
    return max(int(path.stem) for path in (logs / f"{topic}-0").glob("*.log"))


def cleaned_by_both(
    written: Path, before: dict[str, Topic], directory: Path, kafka: Start, minibroker: Start
) -> dict[str, Cleaned]:
    return {
        "kafka": cleaned(written, before, directory / "by-kafka", kafka, objections),
        "minibroker": cleaned(written, before, directory / "by-minibroker", minibroker, complaints),
    }


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory, kafka: Start, minibroker: Start) -> dict[str, Cleaned]:
    """By broker, what was made of a directory that Kafka has written."""
    directory = tmp_path_factory.mktemp("first")
    with kafka(directory / "written", NO_CLEANER) as broker:
        admin = admin_of(broker.bootstrap_servers)
        for topic, retention_ms in DELETE_RETENTION_MS.items():
            configs = {**COMPACT, "delete.retention.ms": str(retention_ms)}
            done(admin.create_topics([NewTopic(topic, 1, 1, config=configs)]))
            write_keyed(broker.bootstrap_servers, topic, seed=1)
            write_transactions(broker.bootstrap_servers, topic, seed=2)
            write_keyed(broker.bootstrap_servers, topic, seed=3)
            write_others(broker.bootstrap_servers, topic)
        before = contents(broker.bootstrap_servers)
        broker.stop()
    return cleaned_by_both(directory / "written", before, directory, kafka, minibroker)


@pytest.fixture(scope="module")
def second(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, Cleaned], kafka: Start, minibroker: Start
) -> dict[str, Cleaned]:
    """By broker, what was made of what Kafka has made, after we wrote more to it."""
    directory = tmp_path_factory.mktemp("second")
    written = copied(first["kafka"].path, directory / "written")
    with minibroker(written, NO_CLEANER) as broker:
        for topic in DELETE_RETENTION_MS:
            write_keyed(broker.bootstrap_servers, topic, seed=4)
            write_transactions(broker.bootstrap_servers, topic, seed=5)
            write_others(broker.bootstrap_servers, topic)
        before = contents(broker.bootstrap_servers)
        assert broker.stop() == 0
    return cleaned_by_both(written, before, directory, kafka, minibroker)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, kafka: Start, minibroker: Start) -> dict[str, Cleaned]:
    """By broker, what was made of segments of which the oldest are of formats 0 and 1."""
    directory = tmp_path_factory.mktemp("old")
    written = directory / "written"
    with minibroker(written, NO_CLEANER) as broker:
        admin = admin_of(broker.bootstrap_servers)
        done(admin.create_topics([NewTopic("old", 1, 1, config={**COMPACT, "delete.retention.ms": "0"})]))
        assert broker.stop() == 0
    for path in (written / "old-0").iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    (written / ".kafka_cleanshutdown").unlink()  # nobody shall believe the checkpoints
    write_old_segments(written / "old-0")
    with minibroker(written, NO_CLEANER) as broker:
        before = contents(broker.bootstrap_servers)
        assert broker.stop() == 0
    return cleaned_by_both(written, before, directory, kafka, minibroker)


def write_old_segments(directory: Path) -> None:
    """Segments in both old formats and the present one, in all codecs that each has; the last one is not cleaned."""
    source, offset = random.Random(7), 0
    for magic in (0, 1, 2, 0, 1, 0):
        data, base_offset = bytearray(), offset
        for codec in (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4):
            values = [None if source.random() < 0.2 else source.randbytes(20) for _ in range(20)]
            keys = [b"k%d" % source.randrange(60) for _ in values]
            records = [
                Record(offset + at, FIRST_TIMESTAMP_MS + at, *pair)
                for at, pair in enumerate(zip(keys, values, strict=True))
            ]
            if magic == 2:
                data += build_batch(records, base_offset=offset, compression=codec)
            else:
                data += build_message_set(records, magic, compression=codec)
            offset += len(records)
        (directory / f"{base_offset:020d}.log").write_bytes(data)


@pytest.fixture(params=["first", "second"])
def both(request: pytest.FixtureRequest) -> dict[str, Cleaned]:
    """Both results of a round."""
    found: dict[str, Cleaned] = request.getfixturevalue(request.param)
    return found


# --- tests ----------------------------------------------------------------------------------------


def dumped(directory: Path, topic: str) -> tuple[list[str], list[str]]:
    """Return a topic's batches and records, and complaints, by Kafka's tool, without what may differ.

    It complains of the holes between the offsets, in the order of a hash map.
    """
    found = dump((directory / f"{topic}-0").glob("*.log"), "--deep-iteration", "--print-data-log")
    lines = [f"{path.name} {line}" for path in sorted(found.lines) for line in found.lines[path]]
    told = [re.sub(NOT_COMPARED, "", HORIZON.sub("deleteHorizonMs: some time", line)) for line in lines]
    return told, in_order(found.complaints, directory)


def in_order(complaints: str, directory: Path) -> list[str]:
    return sorted(line.strip() for line in complaints.replace(str(directory), "").splitlines())


def headers(lines: list[str]) -> list[dict[str, str]]:
    return [fields(line) for line in lines if " baseOffset: " in line]


@pytest.mark.parametrize("topic", DELETE_RETENTION_MS)
def test_both_cleaners_leave_equal_batches_and_records(topic: str, both: dict[str, Cleaned]) -> None:
    ours, theirs = (dumped(both[name].path, topic) for name in ("minibroker", "kafka"))
    assert ours == theirs
    assert all(header["isvalid"] == "true" for header in headers(ours[0]))
    checkpoints = [(both[name].path / CHECKPOINT).read_text().splitlines() for name in ("minibroker", "kafka")]
    assert [line for line in checkpoints[0] if topic in line] == [line for line in checkpoints[1] if topic in line]


def test_both_compacted_logs_have_the_same_records_and_the_latest_of_each_key(both: dict[str, Cleaned]) -> None:
    ours, theirs = both["minibroker"], both["kafka"]
    for topic in DELETE_RETENTION_MS:
        (mine,), (other,) = ours.after[topic].partitions, theirs.after[topic].partitions
        assert mine == other
        (before,) = ours.before[topic].partitions
        assert len(mine.records) < len(before.records)
        visible = set(before.committed)
        latest = {record.key: record for record in before.records if record.offset in visible}
        kept = {record.key: record for record in mine.records}
        assert {key: kept[key] for key, record in latest.items() if record.value is not None} == {
            key: record for key, record in latest.items() if record.value is not None
        }


def test_each_compaction_round_removes_the_expected_records(
    first: dict[str, Cleaned], second: dict[str, Cleaned]
) -> None:
    for each in (first, second):
        for topic in DELETE_RETENTION_MS:
            (before,) = each["kafka"].before[topic].partitions
            assert len(before.records) > len(before.committed)  # some were aborted
    lines = {
        name: {topic: dumped(each["minibroker"].path, topic)[0] for topic in DELETE_RETENTION_MS}
        for name, each in (("first", first), ("second", second))
    }
    for name, topic in (("first", "lasting"), ("first", "forgetful"), ("second", "lasting")):
        assert any("deleteHorizonMs: some time" in line for line in lines[name][topic])
    assert any(header["count"] == "0" for header in headers(lines["first"]["lasting"]))
    assert {header["isControl"] for header in headers(lines["first"]["forgetful"])} == {"false", "true"}
    with_time = {
        name: {
            int(header["baseOffset"])
            for header in headers(lines[name]["forgetful"])
            if header["deleteHorizonMs"] == "some" and header["isControl"] == "false"
        }
        for name in lines
    }
    clean_offset = newest_segment(first["minibroker"].path, "forgetful")
    assert with_time["first"] and max(with_time["first"]) < clean_offset
    assert with_time["second"] and min(with_time["second"]) >= clean_offset  # the time of those before is over


def test_indexes_of_cleaned_segments_are_as_valid_as_kafkas(both: dict[str, Cleaned]) -> None:
    found = {}
    for name, each in both.items():
        files = [path for path in each.path.glob("*/*index") if path.parent.name[:-2] in DELETE_RETENTION_MS]
        files = [path for path in files if path.suffix in (".index", ".timeindex") and path.stat().st_size]
        verified, checked = dump(files, "--verify-index-only"), dump(files, "--index-sanity-check")
        assert [line for lines in verified.lines.values() for line in lines] == []
        assert all("passed sanity check" in line for lines in checked.lines.values() for line in lines)
        found[name] = in_order(verified.complaints, each.path), in_order(checked.complaints, each.path)
    # The tool takes no batch without records for one with a timestamp, and says so of both.
    assert found["minibroker"] == found["kafka"]


def test_old_format_messages_are_cleaned_as_by_kafka(old: dict[str, Cleaned]) -> None:
    ours, theirs = (dumped(old[name].path, "old") for name in ("minibroker", "kafka"))
    assert ours == theirs
    assert old["minibroker"].after == old["kafka"].after
    assert len(old["kafka"].after["old"].partitions[0].records) < len(old["kafka"].before["old"].partitions[0].records)
    assert any("magic: 0 " in line for line in ours[0])  # in the segment that is written to
    assert any("deleteHorizonMs: some time" in line for line in ours[0])


def test_both_cleaners_leave_equal_transaction_indexes(both: dict[str, Cleaned]) -> None:
    ours, theirs = (
        {
            (path.parent.name, path.name): path.read_bytes()
            for topic in DELETE_RETENTION_MS
            for path in (both[name].path / f"{topic}-0").glob("*.txnindex")
            if path.stat().st_size
        }
        for name in ("minibroker", "kafka")
    )
    assert ours == theirs


def test_neither_broker_logs_an_error_during_compaction(both: dict[str, Cleaned]) -> None:
    assert both["kafka"].complaints == []
    assert [line for line in both["minibroker"].complaints if " INFO " not in line] == []


def test_each_broker_serves_and_continues_logs_cleaned_by_the_other(
    both: dict[str, Cleaned], kafka: Start, minibroker: Start, tmp_path: Path
) -> None:
    for start, other, complained in ((kafka, "minibroker", objections), (minibroker, "kafka", complaints)):
        logs = copied(both[other].path, tmp_path / f"cleaned-by-{other}")
        with start(logs, CLEANER) as broker:
            assert contents(broker.bootstrap_servers) == both[other].after
            write_keyed(broker.bootstrap_servers, "lasting", seed=6)
            broker.stop()
            assert [line for line in complained(broker) if " INFO " not in line] == []
