"""Topics and records from dictionaries and files, and what is said of those that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from minibroker.protocol.errors import KafkaError
from minibroker.testing import Broker
from minibroker.testing.verbs.filling import FillError, NewRecord, NewTopic, parse_new_topics

YAML = """\
orders: [first, null, {total: 7}]
users:
  partitions: 3
  config: {cleanup.policy: compact, retention.ms: 1000, preallocate: true}
  records:
    - {key: ann, value: {age: 7}, partition: 1, headers: {source: test}, timestamp_ms: 1700000000000}
empty:
"""
TOPICS = [
    NewTopic("orders", records=[NewRecord(b"first"), NewRecord(None), NewRecord(b'{"total": 7}')]),
    NewTopic(
        "users",
        3,
        {"cleanup.policy": "compact", "retention.ms": "1000", "preallocate": "true"},
        [NewRecord(b'{"age": 7}', b"ann", 1, (("source", b"test"),), 1700000000000)],
    ),
    NewTopic("empty"),
]


def test_topics_and_records_are_read_from_yaml(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    assert parse_new_topics(tmp_path / "a.yaml") == TOPICS


def test_topics_and_records_are_read_from_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"t": ["a", {"value": "b", "headers": [["h", "1"], ["h", "2"]]}]}')
    (topic,) = parse_new_topics(str(tmp_path / "a.json"))
    assert [record.headers for record in topic.records] == [(), (("h", b"1"), ("h", b"2"))]


def test_topics_and_records_are_read_from_json_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"topic": "t", "value": "a"}\n\n{"topic": "u"}\n{"topic": "t", "key": "k"}\n')
    assert parse_new_topics(tmp_path / "a.jsonl") == [
        NewTopic("t", records=[NewRecord(b"a"), NewRecord(None, b"k")]),
        NewTopic("u", records=[NewRecord(None)]),
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"t": 5}, "topic t: a list of records or a mapping is expected"),
        ({5: []}, "name cannot be 5"),
        ({"t": {"partition": 1}}, "topic t has no 'partition'; it has config, partitions, records"),
        ({"t": {"partitions": 0}}, "topic t: partitions cannot be 0"),
        ({"t": [{"key": "k", "time": 1}]}, "a record has no 'time'"),
        ({"t": [{"key": "k", "partition": "1"}]}, "are numbers, not '1'"),
    ],
)
def test_filling_a_broker_with_an_invalid_topic_is_an_error(source: dict[Any, Any], said: str) -> None:
    with pytest.raises(FillError, match=said):
        parse_new_topics(source)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "", "'.txt' is not one of"),
        ("a.json", "[]", "a mapping of topics"),
        ("a.json", "{", "a.json: Expecting"),
        ("a.yaml", "a: [", "a.yaml: while parsing"),
        ("a.jsonl", '{"topic": "t"}\n{"value": 1}', "a.jsonl: line 2: a record is expected"),
    ],
)
def test_an_invalid_file_of_records_is_reported_in_one_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(FillError, match=said) as raised:
        parse_new_topics(tmp_path / name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".yaml"])
def test_a_file_in_another_encoding_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes('{"orders": ["Zürich"]}'.encode("latin-1"))
    with pytest.raises(FillError, match=rf"a{suffix}: .*(decode|invalid start byte)"):
        parse_new_topics(path)


def test_a_broker_is_filled_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML)
    with Broker() as broker:
        broker.fill(tmp_path / "a.yaml")
        assert [record.value for record in broker.records("orders")] == [b"first", None, b'{"total": 7}']
        (ann,) = broker.records("users")
        assert (ann.key, ann.partition, ann.timestamp_ms) == (b"ann", 1, 1700000000000)
        users = broker.running.cluster.image.topics["users"]
        assert (len(users.partitions), users.overrides["cleanup.policy"]) == (3, "compact")
        assert "empty" in broker.running.cluster.image.topics
        broker.fill({"orders": [str(number) for number in range(250)]})
        assert len(broker.records("orders")) == 253


def test_an_error_of_the_broker_is_raised_while_filling_it() -> None:
    with Broker() as broker:
        for source in ({"t": {"config": {"no.such": 1}}}, {"t u": ["a"]}):
            with pytest.raises(KafkaError):
                broker.fill(source)


def test_clients_consume_the_records_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML.replace(", retention.ms: 1000", ""))
    with Broker() as broker:
        broker.fill(tmp_path / "a.yaml")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0})
        consumer.assign([TopicPartition("orders", 0, 0), TopicPartition("users", 1, 0)])
        read = sorted(consumer.consume(4, 20), key=lambda message: (message.topic() or "", message.offset() or 0))
        consumer.close()
    assert [message.value() for message in read] == [b"first", None, b'{"total": 7}', b'{"age": 7}']
    assert (read[3].key(), read[3].headers()) == (b"ann", [("source", b"test")])
