"""Apache Kafka 4.4 starts on a directory that minibroker wrote, serves it and writes to it, and minibroker goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conformance.kafka_files.conftest import KAFKA_PROPERTIES, METADATA, Brokers, Written, complaints, copied
from conformance.kafka_files.contents import contents
from conformance.kafka_files.scenario import COMMITTED, append, committed_offsets, write, write_again, write_security
from conformance.kafka_reference import KafkaProcess

# What Apache Kafka says on directories of its own too: of a new leader of the quorum, at times of a controller that is
# asked before it leads, of the tests' properties, at the end.
USUAL = (
    r"WARN .*QuorumController - .* Performing controller activation\.",
    r"ERROR .*ControllerApis - .* Unexpected error handling request RequestHeader\(apiKey=(CONTROLLER|BROKER)_",
    r"ERROR .*KafkaRaftLog - .* Overriding internal.metadata.log.segment.bytes is only supported for testing\.",
    # On a slow machine, a controller's event takes seconds, and Kafka is stopped while it still reads its groups.
    r"ERROR .*EventPerformanceMonitor - .* Exceptionally slow controller event ",
    r"ERROR .*CoordinatorRuntime - .* Stopped loading records from __\w+-\d+ because the partition is not ",
    r"WARN .*NetworkClient - .* Attempting to close NetworkClient that has already been closed\.",
)
# After a kill, indexes of the segments being written are not there: they are made when a segment is finished.
AFTER_A_KILL = (r"ERROR .*LogLoader - .* Could not find offset index file corresponding to log file ",)


def objections(kafka: KafkaProcess, usual: tuple[str, ...] = USUAL) -> list[str]:
    """Warnings and errors that a broker does not always have."""
    lines = (line for line in kafka.log.splitlines() if re.match(r"\[.*?\] (WARN|ERROR|FATAL) ", line))
    return [line for line in lines if not any(re.search(pattern, line) for pattern in usual)]


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_kafka_serves_a_directory_of_minibroker_and_minibroker_serves_what_kafka_appended(
    how: str, our_written: dict[str, Written], brokers: Brokers, tmp_path: Path
) -> None:
    logs = copied(our_written[how].path, tmp_path / "logs")
    with brokers.kafka(logs) as kafka:
        assert contents(kafka.bootstrap_servers) == our_written[how].contents
        assert committed_offsets(kafka.bootstrap_servers) == COMMITTED
        append(kafka.bootstrap_servers, "snappy", idempotent=True)
        write_again(kafka.bootstrap_servers)
        write_security(kafka.bootstrap_servers)
        longer = contents(kafka.bootstrap_servers)
        kafka.stop()
        assert objections(kafka, USUAL + (AFTER_A_KILL if how == "killed" else ())) == []
    with brokers.minibroker(logs) as broker:
        assert contents(broker.bootstrap_servers) == longer
        assert committed_offsets(broker.bootstrap_servers) == COMMITTED
        append(broker.bootstrap_servers, "gzip", idempotent=True)
        write_again(broker.bootstrap_servers)
        assert complaints(broker) == []


def test_a_directory_of_kafka_is_served_by_minibroker_and_then_kafka_again(
    kafka_written: dict[str, Written], brokers: Brokers, tmp_path: Path
) -> None:
    logs = copied(kafka_written["stopped"].path, tmp_path / "logs")
    with brokers.minibroker(logs) as broker:
        append(broker.bootstrap_servers, "lz4", idempotent=True)
        write_again(broker.bootstrap_servers)
        longer = contents(broker.bootstrap_servers)
        broker.restart()
        assert broker.stop() == 0
    with brokers.kafka(logs) as kafka:
        assert contents(kafka.bootstrap_servers) == longer
        assert committed_offsets(kafka.bootstrap_servers) == COMMITTED
        append(kafka.bootstrap_servers, "zstd", idempotent=True)
        kafka.stop()
        assert objections(kafka) == []


def test_kafka_with_voters_in_its_log_continues_after_minibroker_wrote_to_it(brokers: Brokers, tmp_path: Path) -> None:
    # As `kafka-storage format --standalone` leaves it: kraft.version 1, and nothing in the log yet.
    kafka = KafkaProcess(tmp_path, KAFKA_PROPERTIES, dynamic=True)
    logs = tmp_path / "logs"
    assert [path.name for path in (logs / METADATA).iterdir()] == ["00000000000000000000-0000000000.checkpoint"]
    with brokers.minibroker(logs) as broker:
        write(broker.bootstrap_servers)
        seen = contents(broker.bootstrap_servers)
        assert broker.stop() == 0
    try:
        kafka.start()
        assert contents(kafka.bootstrap_servers) == seen
        kafka.stop()
        assert objections(kafka) == []
    finally:
        kafka.kill()
    with brokers.minibroker(logs) as broker:
        assert contents(broker.bootstrap_servers) == seen
