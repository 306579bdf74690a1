"""Brokers in the metadata log: registered when they come, fenced when they go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

import pytest

from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from minibroker.protocol.primitives import format_uuid, parse_uuid
from tests.broker.harness import Harness

Kind = TypeVar("Kind", bound=Message)


def recorded(harness: Harness, kind: type[Kind]) -> list[Kind]:
    seen: list[Message] = []
    harness.cluster.metadata_log.replay_all_records(seen.append)
    return [record for record in seen if isinstance(record, kind)]


def test_a_node_registers_with_all_fields_of_a_broker(harness: Harness) -> None:
    (broker,) = recorded(harness, RegisterBrokerRecord)
    assert (broker.broker_id, broker.fenced, broker.rack) == (1, False, None)
    assert {(one.name, one.host, one.port, one.security_protocol) for one in broker.end_points} == {
        ("PLAINTEXT", "node1.test", 9001, 0),
        ("INTERNAL", "node1.test", 19001, 0),
    }
    assert [(one.name, one.min_supported_version, one.max_supported_version) for one in broker.features] == [
        ("metadata.version", 7, 33),
        ("transaction.version", 0, 2),
        ("eligible.leader.replicas.version", 0, 1),
        ("group.version", 0, 1),
        ("share.version", 0, 2),
        ("streams.version", 0, 1),
        ("kraft.version", 0, 1),
    ]
    assert [format_uuid(one) for one in broker.log_dirs] == [harness.logs.directories[0].directory_id]


def test_each_start_of_a_node_has_its_own_incarnation_and_epoch(harness: Harness) -> None:
    harness.restart()
    first, second = recorded(harness, RegisterBrokerRecord)
    assert first.incarnation_id != second.incarnation_id
    assert first.broker_epoch < second.broker_epoch == harness.cluster.nodes[1].broker_epoch


def test_the_broker_epoch_is_the_offset_of_the_registration_record(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        log = harness.cluster.metadata_log.storage
        region = log.read(harness.cluster.nodes[1].broker_epoch, 1 << 20)
        assert region is not None
        assert [node.broker_epoch for node in harness.cluster.nodes.values()] == list(
            range(region.next_offset - 3, region.next_offset)
        )


def test_a_stopped_node_is_fenced_and_a_crashed_one_is_not(harness: Harness) -> None:
    harness.restart()
    (fenced,) = recorded(harness, BrokerRegistrationChangeRecord)
    assert (fenced.broker_id, fenced.fenced) == (1, 1)
    harness.restart(crash=True)
    assert len(recorded(harness, BrokerRegistrationChangeRecord)) == 1


def test_a_broker_stops_cleanly_even_if_the_metadata_cannot_record_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

    monkeypatch.setattr(harness.cluster.metadata_log, "append_messages", fail)
    harness.stop()
    assert "the metadata log could not record that the nodes have gone" in caplog.text
    assert (harness.directory / "data" / ".kafka_cleanshutdown").exists()


def test_the_clean_shutdown_marker_contains_the_broker_epoch(harness: Harness) -> None:
    epoch = harness.cluster.nodes[1].broker_epoch
    harness.stop()
    marker = json.loads((harness.directory / "data" / ".kafka_cleanshutdown").read_bytes())
    assert marker == {"version": 0, "brokerEpoch": epoch}


def test_offline_brokers_are_fenced(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.restart(nodes=[1], crash=True)
        brokers = harness.cluster.image.brokers
        assert {broker_id: broker.fenced for broker_id, broker in brokers.items()} == {1: False, 2: True, 3: True}
        harness.restart(nodes=[1])
        assert sorted(one.broker_id for one in recorded(harness, BrokerRegistrationChangeRecord)) == [1, 2, 3]


def test_shared_log_directories_are_registered_only_for_the_first_node(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        first, second = recorded(harness, RegisterBrokerRecord)
        directory_id = parse_uuid(harness.logs.directories[0].directory_id)
        assert (first.log_dirs, second.log_dirs) == ([directory_id], [])
        harness.cluster.controller.create_topic("t", assignment=[(0, [2, 1])])
        assert harness.partition("t").directories == [bytes(16), directory_id]
