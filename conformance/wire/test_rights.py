"""ACLs, what they hide, and rights that come and go: a broker with Kafka's StandardAuthorizer, or with ours.

All clients are User:ANONYMOUS here, so rights go by address: one may do everything, and one only what its ACLs say.
Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.conftest import Broker, StartMinibroker
from conformance.kafka_reference import running_kafka
from conformance.wire.conftest import Differing
from conformance.wire.connection import Connection, ConnectionClosed
from conformance.wire.requests import create_request, produce_request, repeated, topic
from minibroker.broker.security.acls import PatternType, Permission
from minibroker.broker.security.operations import (
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    IDEMPOTENT_WRITE,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    Operation,
    ResourceType,
    Right,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.metadata import DescribeTopicPartitionsRequest, MetadataRequest
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.security import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.messages.transactions import InitProducerIdRequest
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.harness import batch

BROKER, ADMINISTRATOR, CLIENT = "127.0.0.1", "127.0.0.2", "127.0.0.3"
SETTINGS = {
    "node.id": "1",  # which requests name, and only Kafka checks before the rights
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # which is nobody, once the first ACLs are there
}
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
MADE = 0, ""
INVALID, UNASKED = ErrorCode.INVALID_REQUEST, -(1 << 31)
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER, NO_ID = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Creation = CreateAclsRequest.AclCreation
Filter = DeleteAclsRequest.DeleteAclsFilter
ANYTHING = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def creation(name: str, **more: Any) -> Creation:
    """To allow a client to read a topic, unless told."""
    fields = {
        "resource_type": ResourceType.TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:ANONYMOUS",
        "host": CLIENT,
        "operation": Operation.READ,
        "permission_type": ALLOW,
    }
    return Creation(resource_name=name, **{**fields, **more})


def create(connection: Connection, *creations: Creation, version: int = 3) -> list[tuple[int, str | None]]:
    answer = connection.ask(CreateAclsRequest(creations=list(creations)), version)
    return [(one.error_code, one.error_message) for one in answer.results]


def described(connection: Connection, version: int = 3, **wanted: Any) -> list[tuple[Any, ...]]:
    """The ACLs that match, in order."""
    answer = connection.ask(DescribeAclsRequest(**{**ANYTHING, **wanted}), version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, ""), answer
    return sorted(
        (one.resource_type, one.resource_name, one.pattern_type, *map(acl.__getattribute__, ACL_FIELDS))
        for one in answer.resources
        for acl in one.acls
    )


ACL_FIELDS = ("principal", "host", "operation", "permission_type")
OPEN_TO = [
    creation(name, resource_type=kind, operation=Operation.ALL, host=host)
    for kind, name in ((ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*"), (ResourceType.TRANSACTIONAL_ID, "*"))
    for host in (BROKER, ADMINISTRATOR)
] + [
    creation("kafka-cluster", resource_type=ResourceType.CLUSTER, operation=Operation.ALL, host=host)
    for host in (BROKER, ADMINISTRATOR)
]


@pytest.fixture(scope="module")
def guarded(
    against: str, start_minibroker: StartMinibroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker on which only the administrator, and the broker itself, may do something."""
    if sys.platform == "darwin":
        pytest.skip("this system has a single loopback address")
    start = running_kafka if against == "kafka" else start_minibroker
    with start(tmp_path_factory.mktemp("guarded"), SETTINGS) as broker:
        with Connection(broker.bootstrap_servers, address=ADMINISTRATOR) as connection:
            assert create(connection, *OPEN_TO) == [MADE] * len(OPEN_TO)
            repeated(lambda: described(connection), lambda seen: len(seen) == len(OPEN_TO))
        yield broker


@pytest.fixture
def administrator(guarded: Broker) -> Iterator[Connection]:
    with Connection(guarded.bootstrap_servers, address=ADMINISTRATOR) as opened:
        yield opened


@pytest.fixture
def client(guarded: Broker, administrator: Connection) -> Iterator[Connection]:
    """A client without rights; what a test grants it is revoked at the end."""
    with Connection(guarded.bootstrap_servers, address=CLIENT) as opened:
        yield opened
    assert delete(administrator, {"host_filter": CLIENT})[0] == 0


@pytest.fixture
def name(administrator: Connection, new_name: Callable[[], str]) -> str:
    """A topic that there is."""
    made = new_name()
    answer = administrator.ask(create_request(topic(made, 1)), 7).topics[0]
    assert answer.error_code == 0, answer
    repeated(lambda: asked(administrator, name=made), lambda seen: seen.error_code == 0)
    return made


def grant(administrator: Connection, right: Right, name: str, **more: Any) -> None:
    """Add an ACL for the client, and wait until the broker knows it."""
    wanted = creation(name, resource_type=right.resource_type, operation=right.operation, **more)
    assert create(administrator, wanted) == [MADE]
    filtered = {"resource_name_filter": name, "operation": right.operation, "host_filter": CLIENT}
    assert repeated(lambda: described(administrator, **filtered), bool)


def asked(connection: Connection, version: int = 12, **key: Any) -> Any:
    """What Metadata says of a topic, which is not made for it."""
    wanted = [MetadataRequest.MetadataRequestTopic(**{"name": None, **key})]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True)
    return connection.ask(request, version).topics[0]


# --- what is hidden -----------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_a_topic_without_describe_permission_appears_unknown(
    client: Connection, new_name: Callable[[], str], name: str, exists: bool
) -> None:
    wanted = name if exists else new_name()
    told = asked(client, name=wanted)
    assert (told.error_code, told.name, told.topic_id) == (NO_TOPIC, wanted, ZERO_UUID)
    assert (told.topic_authorized_operations, told.partitions) == (UNASKED, [])
    shape = DescribeTopicPartitionsRequest
    (told,) = client.ask(shape(topics=[shape.TopicRequest(name=wanted)]), 0).topics
    assert (told.error_code, told.topic_id, told.topic_authorized_operations) == (NO_TOPIC, ZERO_UUID, UNASKED)
    state = DeleteTopicsRequest.DeleteTopicState(name=wanted)
    (gone,) = client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
    assert (gone.error_code, gone.name, gone.topic_id) == (NO_TOPIC, wanted, ZERO_UUID)


def test_each_page_of_topic_partitions_names_the_topics_without_describe_permission(
    administrator: Connection, client: Connection, new_name: Callable[[], str]
) -> None:
    prefix = new_name()
    seen, hidden, after = (f"{prefix}-{end}" for end in ("b", "c", "d"))
    assert administrator.ask(create_request(topic(seen, 3)), 7).topics[0].error_code == 0
    for one in (seen, after):
        grant(administrator, DESCRIBE_TOPIC, one)
    shape = DescribeTopicPartitionsRequest
    names = (f"{prefix}-a", seen, hidden, after, "__consumer_offsets")

    def page(cursor: tuple[str, int] | None) -> tuple[list[tuple[str, int, int]], tuple[str, int] | None]:
        request = shape(topics=[shape.TopicRequest(name=one) for one in names], response_partition_limit=2)
        request.cursor = None if cursor is None else shape.Cursor(topic_name=cursor[0], partition_index=cursor[1])
        answer = client.ask(request, 0)
        assert not any(one.is_internal for one in answer.topics)
        found = [(one.name, one.error_code, len(one.partitions)) for one in answer.topics]
        then = answer.next_cursor
        return [*found[:1], *sorted(found[1:])], then and (then.topic_name, then.partition_index)

    expected = [(seen, 0, 2), *((one, NO_TOPIC, 0) for one in sorted({*names} - {seen, after}))]
    assert repeated(lambda: page(None), lambda told: told[0] == expected) == (expected, (seen, 2))
    unknown = (after, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
    assert page((seen, 2)) == ([(seen, 0, 1), (hidden, NO_TOPIC, 0), unknown], None)
    assert page((hidden, 0)) == ([unknown, (hidden, NO_TOPIC, 0)], None)


def test_a_topic_without_create_permission_is_not_auto_created_whatever_its_name(
    administrator: Connection, client: Connection, new_name: Callable[[], str]
) -> None:
    absent, invalid, internal, hidden = new_name(), f"{new_name()} ", "__share_group_state", "__consumer_offsets"
    for one in (absent, invalid, internal):
        grant(administrator, DESCRIBE_TOPIC, one)
    wanted = [MetadataRequest.MetadataRequestTopic(name=one) for one in (absent, invalid, internal, hidden)]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
    refused = {one.name: (one.error_code, one.is_internal) for one in client.ask(request, 12).topics}
    assert refused == {**dict.fromkeys((absent, invalid, hidden), (NO_TOPIC, False)), internal: (NO_TOPIC, True)}
    request.allow_auto_topic_creation = False
    codes = {one.name: one.error_code for one in client.ask(request, 12).topics}
    assert codes[absent] == codes[internal] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes[invalid] == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_topic_id_does_not_reveal_the_name(administrator: Connection, client: Connection, name: str) -> None:
    id = asked(administrator, name=name).topic_id
    told = asked(client, topic_id=id)
    assert (told.error_code, told.name, told.topic_id) == (NO_TOPIC, None, id)
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=id)
    (gone,) = client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
    assert (gone.error_code, gone.name, gone.topic_id) == (NO_TOPIC, None, id)
    grant(administrator, DESCRIBE_TOPIC, name)
    (gone,) = client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
    assert (gone.error_code, gone.name, gone.topic_id) == (NO_TOPIC, name, id)


def test_lists_contain_only_resources_with_describe_permission(
    administrator: Connection, client: Connection, name: str
) -> None:
    every = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    assert name not in [one.name for one in client.ask(every, 12).topics]
    grant(administrator, READ_TOPIC, name)
    (told,) = (one for one in client.ask(every, 12).topics if one.name == name)
    assert told.topic_authorized_operations == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert "__consumer_offsets" not in [one.name for one in client.ask(every, 12).topics]


def test_deleting_an_unknown_topic_with_describe_permission_returns_unknown(
    administrator: Connection, client: Connection, new_name: Callable[[], str], name: str
) -> None:
    absent = new_name()

    def delete(wanted: str) -> int:
        answer = client.ask(DeleteTopicsRequest(topic_names=[wanted], timeout_ms=10_000), 5)
        return int(answer.responses[0].error_code)

    grant(administrator, DESCRIBE_TOPIC, absent)
    grant(administrator, DESCRIBE_TOPIC, name)
    assert [delete(absent), delete(name)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_TOPIC]
    grant(administrator, DELETE_TOPIC, name)
    assert delete(name) == ErrorCode.NONE


def test_offsets_of_a_group_without_permission_are_rejected(
    administrator: Connection, client: Connection, new_name: Callable[[], str]
) -> None:
    group = new_name()
    found = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    (told,) = client.ask(found, 4).coordinators
    assert (told.error_code, told.error_message) == (NO_GROUP, "")
    for kind, code, text in (
        (0, NO_GROUP, "Group authorization failed."),
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
    ):
        alone = client.ask(FindCoordinatorRequest(key_type=kind, key=group), 3)
        assert (alone.error_code, alone.error_message) == (code, text)
    repeated(lambda: administrator.ask(found, 4).coordinators[0], lambda seen: seen.error_code == 0)
    shape = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(groups=[shape(group_id=group, topics=None)])
    assert client.ask(request, 9).groups[0].error_code == NO_GROUP
    grant(administrator, READ_GROUP, group)
    assert repeated(lambda: client.ask(request, 9).groups[0].error_code, lambda seen: seen == 0) == 0


# --- rights that come and go --------------------------------------------------------------------


def test_a_producer_is_authorized_while_its_acl_exists(
    administrator: Connection, client: Connection, name: str
) -> None:
    def produce() -> int:
        answer = client.ask(produce_request(name, (0, batch("v"))), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    assert produce() == NO_TOPIC
    grant(administrator, WRITE_TOPIC, name[:-1], resource_pattern_type=PREFIXED)
    assert [produce(), produce(), produce()] == [0, 0, 0]
    grant(administrator, WRITE_TOPIC, name, permission_type=DENY)
    assert produce() == NO_TOPIC


def test_write_permission_on_any_topic_allows_a_producer_id(
    administrator: Connection, client: Connection, new_name: Callable[[], str]
) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert delete(administrator, {"host_filter": CLIENT})[0] == 0
    assert repeated(lambda: client.ask(request, 4).error_code, lambda seen: seen == NO_CLUSTER) == NO_CLUSTER
    grant(administrator, WRITE_TOPIC, new_name())
    assert repeated(lambda: client.ask(request, 4).error_code, lambda seen: seen == 0) == 0
    assert delete(administrator, {"host_filter": CLIENT})[0] == 0
    assert repeated(lambda: client.ask(request, 4).error_code, lambda seen: seen == NO_CLUSTER) == NO_CLUSTER
    grant(administrator, IDEMPOTENT_WRITE, "kafka-cluster")
    assert repeated(lambda: client.ask(request, 4).error_code, lambda seen: seen == 0) == 0


def test_a_prefixed_acl_allows_creating_matching_topics(
    administrator: Connection, client: Connection, new_name: Callable[[], str]
) -> None:
    prefix = new_name()
    grant(administrator, CREATE_TOPIC, prefix, resource_pattern_type=PREFIXED)
    answer = client.ask(create_request(topic(f"{prefix}-1", 1), topic("other", 1)), 7)
    told = {one.name: (one.error_code, one.topic_config_error_code, one.num_partitions) for one in answer.topics}
    assert told == {f"{prefix}-1": (0, NO_TOPIC, -1), "other": (NO_TOPIC, 0, -1)}
    answer = client.ask(create_request(topic("__cluster_metadata", 1)), 7)
    assert answer.topics[0].error_code == INVALID


# --- ACLs themselves ----------------------------------------------------------------------------


def delete(connection: Connection, wanted: dict[str, Any], version: int = 3) -> tuple[int, list[str]]:
    request = DeleteAclsRequest(filters=[Filter(**{**ANYTHING, **wanted})])
    (result,) = connection.ask(request, version).filter_results
    assert {result.error_message, *(acl.error_message for acl in result.matching_acls)} == {None}
    return result.error_code, sorted(acl.resource_name for acl in result.matching_acls)


@pytest.mark.parametrize("version", range(1, 4))
def test_acls_are_created_described_and_deleted(
    administrator: Connection, new_name: Callable[[], str], version: int
) -> None:
    name, user = new_name(), f"User:{new_name()}"
    wanted = [
        creation(name, principal=user),
        creation(name, principal=user),
        creation(name, principal=user, operation=Operation.WRITE, permission_type=DENY, host="*"),
        creation(name[:-1], principal=user, resource_pattern_type=PREFIXED),
        creation("*", principal=user),
    ]
    assert create(administrator, *wanted, version=version) == [MADE] * 5

    def found(**more: Any) -> list[tuple[Any, ...]]:
        return described(administrator, version, principal_filter=user, **more)

    read, write, allow, deny = Operation.READ, Operation.WRITE, ALLOW, DENY
    literal = (2, name, LITERAL, user)
    expected = sorted(
        [
            (*literal, CLIENT, read, allow),
            (*literal, "*", write, deny),
            (2, name[:-1], PREFIXED, user, CLIENT, read, allow),
            (2, "*", LITERAL, user, CLIENT, read, allow),
        ]
    )
    assert repeated(found, lambda seen: seen == expected) == expected
    assert found(resource_name_filter=name) == sorted(each for each in expected if each[1] == name)
    assert found(resource_name_filter=name, pattern_type_filter=2) == expected
    assert found(resource_name_filter=f"{name}x", pattern_type_filter=2) == sorted(
        each for each in expected if each[1] != name
    )
    assert found(resource_name_filter=name, pattern_type_filter=PREFIXED) == []
    assert found(host_filter="*") == [(*literal, "*", write, deny)]
    assert found(permission_type=DENY, operation=Operation.READ) == []
    gone = delete(administrator, {"principal_filter": user, "operation": Operation.READ}, version)
    assert gone == (0, sorted(["*", name, name[:-1]]))
    left = [(*literal, "*", write, deny)]
    assert repeated(found, lambda seen: seen == left) == left
    assert delete(administrator, {"principal_filter": user}, version) == (0, [name])
    assert delete(administrator, {"principal_filter": user}, version) == (0, [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceType.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 9}, "Invalid patternType UNKNOWN"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission_type": 9}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` "
            "(no colon is present separating the principal type from the principal name)",
        ),
    ],
)
def test_invalid_acls_are_rejected(administrator: Connection, wrong: dict[str, Any], message: str) -> None:
    refused = creation("name", principal="User:nobody")
    for field, value in wrong.items():
        setattr(refused, field, value)
    assert create(administrator, refused, creation("name", principal="User:nobody")) == [(INVALID, message), MADE]
    assert repeated(lambda: delete(administrator, {"principal_filter": "User:nobody"}), lambda seen: seen[1] != [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
    ],
)
def test_acls_with_values_that_are_only_for_filters_are_rejected(
    administrator: Connection, differing: Differing, wrong: dict[str, Any], message: str
) -> None:
    answer = create(administrator, creation("name", **{**wrong, "principal": "User:nobody"}))
    assert answer == differing(
        kafka=[(ErrorCode.UNKNOWN_SERVER_ERROR, None)],
        minibroker=[(INVALID, message)],
        because="Kafka fails when it reads them, before its own check",
    )


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("", (INVALID, "Host pattern cannot be null or empty")),
        ("nowhere", MADE),
        ("10.0.0.0/8", MADE),
        ("10.0.0.0/99", (INVALID, "Invalid CIDR notation '10.0.0.0/99': ")),
    ],
)
def test_an_acl_host_may_be_any_name_or_a_valid_cidr_range(
    administrator: Connection, host: str, expected: tuple[int, str]
) -> None:
    ((code, message),) = create(administrator, creation("t", host=host, principal="User:nobody"))
    assert code == expected[0]
    assert message is not None and message.startswith(expected[1])


@pytest.mark.parametrize("wrong", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_an_acl_filter_with_an_unknown_type_is_rejected(guarded: Broker, administrator: Connection, wrong: str) -> None:
    with pytest.raises(ConnectionClosed), Connection(guarded.bootstrap_servers, address=ADMINISTRATOR) as another:
        another.ask(DescribeAclsRequest(**{**ANYTHING, wrong: 0}), 3)
    assert described(administrator, **{wrong: 99}) == []
    request = DeleteAclsRequest(filters=[Filter(**{**ANYTHING, wrong: 99})])
    (result,) = administrator.ask(request, 3).filter_results
    which = "patternFilter" if wrong.endswith("filter") else "entryFilter"
    assert (result.error_code, result.error_message) == (INVALID, f"Unknown {which}.")
