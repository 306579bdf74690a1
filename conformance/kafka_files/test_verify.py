"""`minibroker pipeline verify` finds nothing in what Apache Kafka 4.4 has written and cleaned, stopped or killed.

Nor in what both brokers have written, one after the other; and what is broken in it, it finds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from conformance.kafka_files.conftest import KAFKA_PROPERTIES, Brokers, Written, copied
from conformance.kafka_files.scenario import admin_of, append, done, wait_until, write
from conformance.kafka_files.test_compaction import CHECKPOINT, CLEANER, COMPACT, write_keyed, write_transactions
from conformance.kafka_reference import running_kafka
from tests.pipeline.verifying.support import judge


def verified(directory: Path) -> tuple[int, list[dict[str, Any]]]:
    """(exit status, findings) of the command."""
    command = [sys.executable, "-m", "minibroker", "pipeline", "verify", "--json", "--path", str(directory)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return result.returncode, [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def kafka_cleaned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By "killed" and "stopped" a directory of Kafka's that its cleaner was over, as files were then."""
    directory = tmp_path_factory.mktemp("cleaned")
    with running_kafka(directory, {**KAFKA_PROPERTIES, **CLEANER}) as kafka:
        topics = [
            NewTopic(name, 1, 1, config={**COMPACT, "delete.retention.ms": retention})
            for name, retention in (("forgetful", "0"), ("lasting", "86400000"))
        ]
        admin = admin_of(kafka.bootstrap_servers)
        done(admin.create_topics(topics))
        write(kafka.bootstrap_servers)
        for seed in range(3):
            for topic in ("forgetful", "lasting"):
                write_keyed(kafka.bootstrap_servers, topic, seed=seed)
                write_transactions(kafka.bootstrap_servers, topic, seed=seed)
        logs = directory / "logs"
        wait_until(lambda: cleaned(logs), "a cleaning of both topics")
        wait_until(lambda: all(ended(admin, topic) for topic in ("forgetful", "lasting")), "the last markers")
        kafka.kill()
        killed = copied(logs, directory / "killed")
        kafka.start()
        write_keyed(kafka.bootstrap_servers, "forgetful", seed=9)
        kafka.stop()
        return {"killed": killed, "stopped": logs}


def ended(admin: AdminClient, topic: str) -> bool:
    """Whether no transaction is open there: a commit is answered before its markers are written."""
    ends = []
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        asked = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}, isolation_level=isolation)
        ends += [future.result().offset for future in asked.values()]
    return ends[0] == ends[1]


def cleaned(logs: Path) -> bool:
    checkpoint = logs / CHECKPOINT
    text = checkpoint.read_text() if checkpoint.exists() else ""
    return all(f"{topic} 0 " in text for topic in ("forgetful", "lasting"))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_files_written_by_kafka_have_no_findings(how: str, kafka_written: dict[str, Written]) -> None:
    assert judge(kafka_written[how].path) == []


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_files_cleaned_by_kafka_have_no_findings(how: str, kafka_cleaned: dict[str, Path]) -> None:
    assert judge(kafka_cleaned[how]) == []


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_files_written_by_minibroker_have_no_findings(how: str, our_written: dict[str, Written]) -> None:
    assert judge(our_written[how].path) == []


def test_files_written_by_kafka_and_then_minibroker_have_no_findings(
    kafka_cleaned: dict[str, Path], brokers: Brokers, tmp_path: Path
) -> None:
    logs = copied(kafka_cleaned["killed"], tmp_path / "logs")
    with brokers.minibroker(logs) as broker:
        append(broker.bootstrap_servers, "zstd", idempotent=True)
        assert broker.stop() == 0
    assert judge(logs) == []


def test_a_corrupt_batch_of_kafka_is_found(kafka_written: dict[str, Written], tmp_path: Path) -> None:
    logs = copied(kafka_written["stopped"].path, tmp_path / "logs")
    file = logs / "plain-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    status, (finding,) = verified(logs)
    assert (status, finding["kind"], finding["file"]) == (1, "crc", f"plain-0/{0:020d}.log")
    assert finding["position"] <= len(data) // 2
