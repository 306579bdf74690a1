"""DescribeConfigs and IncrementalAlterConfigs: of topics in full, of brokers as far as tests can change them back.

Codes and messages are what Apache Kafka 4.4 answers; of a message only what tells the case apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from conformance.wire.conftest import Differing, NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import broker_id, create_request, repeated, topic
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, OF_DEFAULT, OF_FILE = 1, 5, 4
Change = tuple[str, int, str | None]
Asked = DescribeConfigsRequest.DescribeConfigsResource
Altered = IncrementalAlterConfigsRequest.AlterConfigsResource


def describe(
    connection: Connection, kind: int, name: str, keys: Sequence[str] | None = None, version: int = 4, **fields: bool
) -> Any:
    """The answer for one resource."""
    resource = Asked(resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys))
    (answer,) = connection.ask(DescribeConfigsRequest(resources=[resource], **fields), version).results
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer


def values(answer: Any) -> dict[str, tuple[str | None, int]]:
    """(value, source) by name."""
    assert answer.error_code == 0, answer
    return {each.name: (each.value, each.config_source) for each in answer.configs}


def alter(
    connection: Connection, *resources: tuple[int, str, Sequence[Change]], version: int = 1, validate_only: bool = False
) -> list[tuple[ErrorCode, str]]:
    """(code, message) of each resource."""
    listed = [
        Altered(
            resource_type=kind,
            resource_name=name,
            configs=[Altered.AlterableConfig(name=key, config_operation=how, value=to) for key, how, to in changes],
        )
        for kind, name, changes in resources
    ]
    request = IncrementalAlterConfigsRequest(resources=listed, validate_only=validate_only)
    answers = connection.ask(request, version).responses
    return [(ErrorCode(each.error_code), each.error_message or "") for each in answers]


DONE = [(ErrorCode.NONE, "")]


@pytest.mark.parametrize("version", range(1, 5))
def test_a_topic_config_is_described_with_its_values(connection: Connection, new_topic: NewTopic, version: int) -> None:
    name = new_topic(retention_ms="77")
    answer = describe(connection, TOPIC, name, version=version)
    found = values(answer)
    assert found["retention.ms"] == ("77", OF_TOPIC)
    assert found["segment.bytes"] == ("1073741824", OF_DEFAULT)
    assert {"cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type"} <= found.keys()
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in answer.configs)
    types = {each.name: each.config_type for each in answer.configs}
    if version >= 3:  # list, string, long, int, boolean, double
        named = ("cleanup.policy", "compression.type", "retention.ms", "segment.bytes", "preallocate")
        assert [types[each] for each in named] == [7, 2, 5, 3, 1]
        assert types["min.cleanable.dirty.ratio"] == 6


# All that Kafka 4.4 lists: who copies a topic's settings to another cluster must find no other there.
OF_A_TOPIC = set(
    [
        "cleanup.policy",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.type",
        "compression.zstd.level",
        "delete.retention.ms",
        "errors.deadletterqueue.group.enable",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "follower.replication.throttled.replicas",
        "index.interval.bytes",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "max.decompressed.message.bytes",
        "max.message.bytes",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.type",
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "min.insync.replicas",
        "preallocate",
        "remote.copy.lag.bytes",
        "remote.copy.lag.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "retention.bytes",
        "retention.ms",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
        "unclean.leader.election.enable",
    ]
)


def test_all_topic_configs_are_listed(connection: Connection, new_name: Callable[[], str]) -> None:
    name = new_name()
    answer = connection.ask(create_request(topic(name)), 7).topics[0]
    assert {each.name for each in answer.configs} == OF_A_TOPIC
    listed = repeated(lambda: describe(connection, TOPIC, name), lambda answer: bool(answer.error_code == 0))
    assert values(listed).keys() == OF_A_TOPIC


def test_only_requested_and_known_configs_are_described(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert values(describe(connection, TOPIC, name, ["retention.ms", "no.such"])).keys() == {"retention.ms"}
    assert len(values(describe(connection, TOPIC, name, []))) == len(values(describe(connection, TOPIC, name)))


def test_synonyms_and_documentation_are_included_on_request(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(retention_ms="77")
    both = ["retention.ms", "segment.ms"]
    answer = describe(connection, TOPIC, name, both, include_synonyms=True, include_documentation=True)
    found = {each.name: each for each in answer.configs}
    synonyms = {key: [(each.name, each.value, each.source) for each in found[key].synonyms] for key in both}
    assert synonyms == {"retention.ms": [("retention.ms", "77", OF_TOPIC)], "segment.ms": []}
    assert all(found[key].documentation for key in both)
    assert describe(connection, TOPIC, name, both).configs[0].documentation is None


REFUSED = {
    "unknown topic": (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "no topic name": (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
    "empty topic name": (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
    "another broker": (BROKER, "77", ErrorCode.INVALID_REQUEST),
    "no broker number": (BROKER, "x", ErrorCode.INVALID_REQUEST),
    "unknown kind": (9, "x", ErrorCode.INVALID_REQUEST),
    "kind 0": (0, "x", ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize(("kind", "name", "code"), REFUSED.values(), ids=REFUSED)
def test_configs_of_invalid_resources_cannot_be_described(
    connection: Connection, kind: int, name: str, code: ErrorCode
) -> None:
    answer = describe(connection, kind, name)
    assert (ErrorCode(answer.error_code), answer.configs) == (code, [])


def test_a_broker_config_is_described_with_its_values(connection: Connection) -> None:
    answer = describe(connection, BROKER, str(broker_id(connection)))
    found = {each.name: each for each in answer.configs}
    assert (found["num.partitions"].value, found["num.partitions"].config_source) == ("3", OF_FILE)
    assert found["num.partitions"].read_only
    assert (found["log.retention.ms"].value, found["log.retention.ms"].read_only) == (None, False)
    assert found["log.dirs"].value


def test_a_topic_config_is_set_and_deleted(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    for version in (0, 1):
        assert alter(connection, (TOPIC, name, [("retention.ms", SET, "5000")]), version=version) == DONE
        assert eventually(connection, name, "retention.ms", ("5000", OF_TOPIC))
        assert alter(connection, (TOPIC, name, [("retention.ms", DELETE, None)]), version=version) == DONE
        assert eventually(connection, name, "retention.ms", ("604800000", OF_DEFAULT))
    assert alter(connection, (TOPIC, name, [("retention.ms", DELETE, None)])) == DONE


def eventually(connection: Connection, name: str, key: str, expected: tuple[str, int]) -> bool:
    found = repeated(
        lambda: values(describe(connection, TOPIC, name, [key]))[key], lambda found: bool(found == expected)
    )
    assert found == expected
    return True


def test_a_list_config_is_appended_and_subtracted(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    steps = [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "delete", "compact"),
        (APPEND, "delete", "compact,delete"),
    ]
    for how, value, expected in steps:
        assert alter(connection, (TOPIC, name, [("cleanup.policy", how, value)])) == DONE
        assert eventually(connection, name, "cleanup.policy", (expected, OF_TOPIC))


def test_a_list_config_cannot_grow_beyond_the_string_limit(connection: Connection, new_topic: NewTopic) -> None:
    name, key = new_topic(), "follower.replication.throttled.replicas"
    texts = [",".join(f"{number}:1" for number in range(start, start + 1600)) for start in (10_000, 20_000, 30_000)]
    for number, text in enumerate(texts[:2], start=1):
        assert alter(connection, (TOPIC, name, [(key, APPEND, text)])) == DONE
        assert eventually(connection, name, key, (",".join(texts[:number]), OF_TOPIC))
    message = "The configuration value cannot be added because it exceeds the maximum value size of 32767 bytes."
    assert alter(connection, (TOPIC, name, [(key, APPEND, texts[2])])) == [(ErrorCode.INVALID_CONFIG, message)]
    assert eventually(connection, name, key, (",".join(texts[:2]), OF_TOPIC))


def test_validate_only_changes_no_config(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    assert alter(connection, (TOPIC, name, [("retention.ms", SET, "5000")]), validate_only=True) == DONE
    ((code, _),) = alter(connection, (TOPIC, name, [("retention.ms", SET, "x")]), validate_only=True)
    assert code == ErrorCode.INVALID_CONFIG
    assert values(describe(connection, TOPIC, name))["retention.ms"] == ("604800000", OF_DEFAULT)


CHANGES: dict[str, tuple[Sequence[Change], ErrorCode, str]] = {
    "a wrong value": (
        [("retention.ms", SET, "abc")],
        ErrorCode.INVALID_CONFIG,
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    "an unknown name": ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
    "appending to a number": (
        [("retention.ms", APPEND, "5")],
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    ),
    "subtracting from a number": (
        [("retention.ms", SUBTRACT, "5")],
        ErrorCode.INVALID_CONFIG,
        "Can't SUBTRACT to key retention.ms because its type is not LIST.",
    ),
    "no policy": (
        [("cleanup.policy", APPEND, "eat")],
        ErrorCode.INVALID_CONFIG,
        "Invalid value eat for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    "a lag above the lag": (
        [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")],
        ErrorCode.INVALID_CONFIG,
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
    "null": ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
    "the same name twice": (
        [("retention.ms", SET, "5"), ("retention.ms", SET, "6")],
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    "a wrong one after a good one": (
        [("retention.ms", SET, "8"), ("segment.ms", SET, "x")],
        ErrorCode.INVALID_CONFIG,
        "Invalid value x for configuration segment.ms",
    ),
}


@pytest.mark.parametrize(("changes", "code", "message"), CHANGES.values(), ids=CHANGES)
def test_invalid_config_changes_are_rejected(
    connection: Connection, new_topic: NewTopic, changes: Sequence[Change], code: ErrorCode, message: str
) -> None:
    name = new_topic()
    ((answered, complaint),) = alter(connection, (TOPIC, name, changes))
    assert answered == code
    assert message in complaint
    assert values(describe(connection, TOPIC, name))["retention.ms"] == ("604800000", OF_DEFAULT)


def test_an_unknown_config_operation_is_rejected(
    connection: Connection, new_topic: NewTopic, differing: Differing
) -> None:
    ((code, _),) = alter(connection, (TOPIC, new_topic(), [("retention.ms", 9, "1")]))
    assert code == differing(
        kafka=ErrorCode.UNKNOWN_SERVER_ERROR,
        minibroker=ErrorCode.INVALID_REQUEST,
        because="Kafka's controller fails over it, though the client is to blame",
    )


def test_each_config_resource_is_altered_separately(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    answers = alter(
        connection, (TOPIC, name, [("retention.ms", SET, "7")]), (TOPIC, "no-such-topic", [("retention.ms", SET, "7")])
    )
    assert answers == [
        (ErrorCode.NONE, ""),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no-such-topic' does not exist."),
    ]
    assert eventually(connection, name, "retention.ms", ("7", OF_TOPIC))


def test_a_duplicate_config_resource_is_rejected(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic()
    twice = [(TOPIC, name, [("retention.ms", SET, "7")]), (TOPIC, name, [("segment.ms", SET, "7")])]
    refusal = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert alter(connection, *twice) == [refusal] * 2


UNCHANGEABLE: dict[str, tuple[int, str, Change, str]] = {
    "another broker": (BROKER, "77", ("log.retention.ms", SET, "5"), "Unexpected broker id"),
    "no broker number": (BROKER, "x", ("log.retention.ms", SET, "5"), "must be an integer, but it is: x"),
    "what is fixed at the start": (BROKER, "here", ("node.id", SET, "5"), "Cannot update these configs dynamically"),
    "a broker's wrong value": (BROKER, "here", ("log.retention.ms", SET, "x"), "Not a number of type LONG"),
    "an unknown kind": (9, "x", ("a", SET, "b"), "9"),
    "all topics": (TOPIC, "", ("retention.ms", SET, "5"), "Default topic resources are not allowed."),
}


@pytest.mark.parametrize(("kind", "name", "change", "message"), UNCHANGEABLE.values(), ids=UNCHANGEABLE)
def test_changes_of_unknown_resources_or_fixed_configs_or_to_invalid_values_are_rejected(
    connection: Connection, kind: int, name: str, change: Change, message: str
) -> None:
    resource = str(broker_id(connection)) if name == "here" else name
    ((code, complaint),) = alter(connection, (kind, resource, [change]))
    assert code == ErrorCode.INVALID_REQUEST
    assert message in complaint


def test_a_broker_config_is_the_default_of_topics(connection: Connection, new_topic: NewTopic) -> None:
    name, here = new_topic(), str(broker_id(connection))
    for resource, value, source in (("", "604800002", 3), (here, "604800001", 2)):
        assert alter(connection, (BROKER, resource, [("log.retention.ms", SET, value)])) == DONE
        assert eventually(connection, name, "retention.ms", (value, source))
    for resource in (here, ""):
        assert alter(connection, (BROKER, resource, [("log.retention.ms", DELETE, None)])) == DONE
    assert eventually(connection, name, "retention.ms", ("604800000", OF_DEFAULT))


MINIMUM = "min.insync.replicas"
BROKER_LEVEL = [(ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")]
ALL_BROKERS = [(ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")]


def test_min_insync_replicas_can_be_set_only_cluster_wide(connection: Connection, new_topic: NewTopic) -> None:
    of_all, here = 3, str(broker_id(connection))
    assert values(describe(connection, BROKER, "", [MINIMUM])) == {MINIMUM: ("1", of_all)}
    assert values(describe(connection, TOPIC, new_topic(), [MINIMUM])) == {MINIMUM: ("1", of_all)}
    assert values(describe(connection, BROKER, here, [MINIMUM])) == {MINIMUM: ("1", of_all)}
    assert alter(connection, (BROKER, here, [(MINIMUM, SET, "2")])) == BROKER_LEVEL
    assert alter(connection, (BROKER, here, [(MINIMUM, DELETE, None)])) == BROKER_LEVEL
    assert alter(connection, (BROKER, "", [(MINIMUM, DELETE, None)])) == ALL_BROKERS
    assert alter(connection, (BROKER, "", [(MINIMUM, SET, "1")])) == DONE


RATE = "leader.replication.throttled.rate"
OF_BROKER, OF_ALL = 2, 3


def test_broker_settings_without_effect_are_stored_and_described(connection: Connection) -> None:
    here, unknown = str(broker_id(connection)), "no.such.name"
    assert values(describe(connection, BROKER, here, [RATE, unknown])) == {}
    assert alter(connection, (BROKER, "", [(RATE, SET, "2000")])) == DONE
    assert alter(connection, (BROKER, here, [(RATE, SET, "1000"), (unknown, SET, "x")])) == DONE
    found = repeated(
        lambda: describe(connection, BROKER, here, [RATE, unknown], include_synonyms=True),
        lambda answer: len(answer.configs) == 2 and len(answer.configs[0].synonyms + answer.configs[1].synonyms) == 3,
    )
    known = {each.name: each for each in found.configs}
    assert [(one.value, one.source) for one in known[RATE].synonyms] == [("1000", OF_BROKER), ("2000", OF_ALL)]
    assert (known[RATE].config_type, known[RATE].read_only, known[RATE].is_sensitive) == (5, False, False)
    assert (known[unknown].value, known[unknown].config_type) == (None, 0)
    assert known[unknown].read_only and known[unknown].is_sensitive
    assert alter(connection, (BROKER, "", [(RATE, DELETE, None)])) == DONE
    assert alter(connection, (BROKER, here, [(RATE, DELETE, None), (unknown, DELETE, None)])) == DONE


ONLY = "Cannot update these configs at default cluster level, broker id must be specified: "
PREFIXED = "These security configs can be dynamically updated only per-listener using the listener prefix: "
INVALID_REQUEST, INVALID_CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG
OF_BROKERS: dict[str, tuple[str, Change, ErrorCode, str]] = {
    "security": ("", ("ssl.keystore.location", SET, "/x"), INVALID_REQUEST, f"{PREFIXED}[ssl.keystore.location]"),
    "of one broker": ("", ("sasl.jaas.config", SET, "x"), INVALID_REQUEST, f"{ONLY}[sasl.jaas.config]"),
    "fixed": ("0", ("num.partitions", SET, "4"), INVALID_REQUEST, "Cannot update these configs dynamically: [num."),
    "a bad value": ("0", ("num.io.threads", SET, "0"), INVALID_REQUEST, "Invalid value 0 for configuration num.io"),
    "a bad word": ("0", ("ssl.client.auth", SET, "x"), INVALID_REQUEST, "Invalid value x for configuration ssl.client"),
    "an unknown list": ("0", ("no.such", APPEND, "x"), INVALID_CONFIG, "Unknown config name: no.such"),
    "no list": (
        "0",
        ("max.connections", SUBTRACT, "1"),
        INVALID_CONFIG,
        "Config value subtract is not allowed for conf",
    ),
    "one listener's": (
        "",
        ("listener.name.plaintext.ssl.client.auth", SET, "none"),
        INVALID_REQUEST,
        f"{ONLY}[listener.name.plaintext.ssl.client.auth]",
    ),
}


@pytest.mark.parametrize(("name", "line", "code", "message"), OF_BROKERS.values(), ids=OF_BROKERS)
def test_a_broker_rejects_invalid_settings(
    connection: Connection, name: str, line: Change, code: ErrorCode, message: str
) -> None:
    ((found, words),) = alter(connection, (BROKER, name and str(broker_id(connection)), [line]), validate_only=True)
    assert (found, words[: len(message)]) == (code, message)


TAKEN: list[tuple[str, str]] = [
    ("num.io.threads", "9"),
    ("num.network.threads", "3"),
    ("max.connections", "5"),
    ("max.connections.per.ip.overrides", "10.0.0.1:1"),
    ("remote.log.reader.threads", "11"),
    ("follower.replication.throttled.rate", "1"),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "1"),
    ("listener.name.x.max.connections", "9"),
    ("ssl.client.auth", "none"),
    ("sasl.enabled.mechanisms", "PLAIN"),
    ("zookeeper.connect", "x"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:SSL"),
    ("listener.security.protocol.map", "plaintext:plaintext,CONTROLLER:PLAINTEXT"),
]


@pytest.mark.parametrize(("key", "value"), TAKEN)
def test_a_broker_accepts_valid_settings(connection: Connection, key: str, value: str) -> None:
    here = str(broker_id(connection))
    assert alter(connection, (BROKER, here, [(key, SET, value)]), validate_only=True) == DONE


KEPT = "Security protocol cannot be updated for existing listener"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("PLAINTEXT:SSL,CONTROLLER:PLAINTEXT", KEPT),
        ("PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL,CONTROLLER:PLAINTEXT", KEPT),
        ("X:SSL", "PLAINTEXT"),
        ("PLAINTEXT:NOPE,CONTROLLER:PLAINTEXT", "NOPE"),
        ("PLAINTEXT", "listener.security.protocol.map"),
        ("", "PLAINTEXT"),
    ],
)
def test_the_security_protocol_of_an_open_listener_cannot_be_changed(
    connection: Connection, value: str, message: str
) -> None:
    here, key = str(broker_id(connection)), "listener.security.protocol.map"
    (found,) = describe(connection, BROKER, here, [key]).configs
    assert not found.read_only
    ((code, words),) = alter(connection, (BROKER, here, [(key, SET, value)]), validate_only=True)
    assert code == INVALID_REQUEST and message in words
    ((code, words),) = alter(connection, (BROKER, "", [(key, SET, found.value)]), validate_only=True)
    assert (code, words) == (INVALID_REQUEST, f"{ONLY}[{key}]")


def test_a_broker_lists_as_many_settings_as_kafka(connection: Connection) -> None:
    listed = values(describe(connection, BROKER, str(broker_id(connection)))).keys()
    assert len(listed - {"socket.busy.poll.us"}) == 350  # ours, which a broker in the tests' process is given
