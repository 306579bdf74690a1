"""What clients without rights are answered by every API.

Every literal is what Apache Kafka 4.4 answers. Rights that come and go are in `test_rights`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from conformance.wire.test_rights import (
    CLIENT,
    INVALID,
    MADE,
    NO_CLUSTER,
    NO_GROUP,
    NO_ID,
    NO_TOPIC,
    administrator,
    client,
    create,
    creation,
    guarded,
    name,
)
from conformance.wire.test_rights import delete as remove
from minibroker.broker.requests.served import SERVED
from minibroker.broker.security.operations import (
    REQUIRED,
    Operation,
    ResourceType,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest, JoinGroupRequest
from minibroker.protocol.messages.log_offsets import ListOffsetsRequest
from minibroker.protocol.messages.replicas import ElectLeadersRequest, ListPartitionReassignmentsRequest
from minibroker.protocol.messages.security import DescribeUserScramCredentialsRequest
from minibroker.protocol.messages.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.messages.transactions import DescribeProducersRequest
from tests.broker.security.test_operations import REQUESTS, error_codes

__all__ = ["administrator", "client", "guarded", "name"]  # the broker, and clients with and without rights

# --- each API, without any right ----------------------------------------------------------------

DENIED = {
    NO_TOPIC: [
        *(ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS),
        *(ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.CREATE_PARTITIONS, ApiKey.DESCRIBE_PRODUCERS),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ],
    NO_GROUP: [
        *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
        *(ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE),
        *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_HEARTBEAT),
        *(ApiKey.STREAMS_GROUP_DESCRIBE, ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE),
        *(ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
        *(ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS),
    ],
    NO_ID: [
        *(ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_TRANSACTIONS),
    ],
    NO_CLUSTER: [
        *(ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS),
        *(ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
        *(ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS),
        *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES),
        *(ApiKey.UNREGISTER_BROKER, ApiKey.LIST_CONFIG_RESOURCES, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER),
        *(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE, ApiKey.WRITE_SHARE_GROUP_STATE),
        *(ApiKey.DELETE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ApiKey.DESCRIBE_LOG_DIRS),
    ],
}
DENIED_BY_RESOURCE = {
    ApiKey.PRODUCE: {NO_TOPIC, NO_ID},
    ApiKey.FIND_COORDINATOR: {NO_GROUP, NO_ID},
    ApiKey.INIT_PRODUCER_ID: {NO_ID, NO_CLUSTER},
    ApiKey.ADD_PARTITIONS_TO_TXN: {NO_ID, NO_CLUSTER},
    **dict.fromkeys(
        (ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
        {NO_TOPIC, NO_GROUP, NO_CLUSTER},
    ),
}
OTHERS = {
    *(ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER),  # which leave out what may not be seen
    *(ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN),  # see test_delegation_tokens
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,  # see below
    *(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, ApiKey.UNREGISTER_CONTROLLER),  # new in Kafka 4.4
}
NO_TOPICS = SimpleNamespace(
    cluster=SimpleNamespace(image=SimpleNamespace(topics={})), request=lambda *_, **__: None
)  # in place of a harness, for requests that name a topic by its id


def answers_in_each_version(connection: Connection, request: Message) -> Iterator[tuple[int, Any]]:
    """The answer in each version that Kafka serves too; none if it says the same with other fields."""
    key = ApiKey(request.api_key)
    if hasattr(request, "timeout_ms"):
        request.timeout_ms = 10_000
    (served,) = (one for one in connection.ask(ApiVersionsRequest(), 0).api_keys if one.api_key == key)
    least = max(served.min_version, KAFKAS_FIRST.get(key, 0))
    for version in range(least, min(served.max_version, SERVED[key].versions[-1]) + 1):
        try:
            request.encode(version)
        except ValueError:
            continue
        yield version, connection.ask(request, version)


def answers(connection: Connection, key: ApiKey) -> Iterator[tuple[int, Any]]:
    for request, _ in REQUESTS[key]:
        asked: Any = request(NO_TOPICS) if callable(request) else request
        yield from answers_in_each_version(connection, asked)


def codes_of_requests(connection: Connection, key: ApiKey) -> Iterator[tuple[int, set[int]]]:
    for version, answer in answers(connection, key):
        yield version, set(error_codes(answer)) - SAYS_NOTHING


def messages(answer: Any) -> Iterator[str | None]:
    """The messages beside all error codes in an answer. Kafka's dump of the request is left out."""
    if isinstance(answer, list):
        for each in answer:
            yield from messages(each)
    elif isinstance(answer, Struct):
        for name in answer.__fields__:
            value = getattr(answer, name)
            if not name.endswith("error_code"):
                yield from messages(value)
            elif value not in SAYS_NOTHING and (beside := f"{name.removesuffix('code')}message") in answer.__fields__:
                text = getattr(answer, beside)
                yield text and re.sub("^Request .* needs", "Request needs", text)


SAYS_NOTHING = {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID}
KAFKAS_FIRST = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    **dict.fromkeys((ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS), 1),
}


@pytest.mark.parametrize(
    ("key", "code"),
    [pytest.param(key, code, id=key.name) for code, keys in DENIED.items() for key in keys],
)
def test_clients_without_permission_are_rejected_in_each_version(
    client: Connection, key: ApiKey, code: ErrorCode
) -> None:
    refused = {version: codes for version, codes in codes_of_requests(client, key) if codes}
    assert refused == dict.fromkeys(refused, {code})
    assert refused


def test_every_api_that_requires_permission_is_tested() -> None:
    here = {*DENIED_BY_RESOURCE, *(key for keys in DENIED.values() for key in keys)}
    assert {key for key, rights in REQUIRED.items() if rights} == here | OTHERS
    assert not here & OTHERS


@pytest.mark.parametrize("key", DENIED_BY_RESOURCE, ids=lambda key: key.name)
def test_each_resource_without_permission_is_rejected(client: Connection, key: ApiKey) -> None:
    refused = {code for _, codes in codes_of_requests(client, key) for code in codes}
    assert refused == DENIED_BY_RESOURCE[key]


TOPIC_MESSAGE, GROUP_MESSAGE = "Topic authorization failed.", "Group authorization failed."
ID_MESSAGE, CLUSTER_MESSAGE = "Transactional Id authorization failed.", "Cluster authorization failed."
NEEDS_ALTER, NEEDS_DESCRIBE = "Request needs ALTER permission.", "Request needs DESCRIBE permission."
MESSAGES: dict[ApiKey, dict[int, set[str | None]]] = {  # by the first version that has them; others have null
    ApiKey.FIND_COORDINATOR: {0: {""}, 1: {GROUP_MESSAGE, ID_MESSAGE}, 4: {""}},
    ApiKey.CREATE_TOPICS: {0: {"Authorization failed."}},
    ApiKey.DELETE_TOPICS: {0: {None}, 5: {TOPIC_MESSAGE}},
    ApiKey.DESCRIBE_QUORUM: {0: {""}, 2: {CLUSTER_MESSAGE}},
    ApiKey.DESCRIBE_PRODUCERS: {0: {TOPIC_MESSAGE}},
    ApiKey.ALTER_CLIENT_QUOTAS: {0: {CLUSTER_MESSAGE}},
    ApiKey.ADD_RAFT_VOTER: {0: {CLUSTER_MESSAGE}},
    ApiKey.REMOVE_RAFT_VOTER: {0: {CLUSTER_MESSAGE}},
    ApiKey.DESCRIBE_CONFIGS: {0: {TOPIC_MESSAGE, GROUP_MESSAGE, CLUSTER_MESSAGE}},
    ApiKey.ALTER_CONFIGS: {0: {TOPIC_MESSAGE, GROUP_MESSAGE, None}},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {0: {TOPIC_MESSAGE, GROUP_MESSAGE, CLUSTER_MESSAGE, None}},  # null for brokers
    **dict.fromkeys((key for key in ApiKey if "SHARE_GROUP_STATE" in key.name), {0: {CLUSTER_MESSAGE}}),
    **dict.fromkeys((ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS), {0: {GROUP_MESSAGE}}),
    **dict.fromkeys((ApiKey.DESCRIBE_ACLS, ApiKey.LIST_PARTITION_REASSIGNMENTS), {0: {NEEDS_DESCRIBE}}),
    **dict.fromkeys(
        (
            *(ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS),
            *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER),
        ),
        {0: {NEEDS_ALTER}},
    ),
}


@pytest.mark.parametrize(
    "key",
    sorted({*DENIED_BY_RESOURCE, *(key for keys in DENIED.values() for key in keys)}),
    ids=lambda key: ApiKey(key).name,
)
def test_authorization_errors_have_kafkas_messages(client: Connection, key: ApiKey) -> None:
    told: dict[int, set[str | None]] = {}
    for version, answer in answers(client, key):
        told.setdefault(version, set()).update(messages(answer))
    by_version = MESSAGES.get(key, {0: {None}})
    expected = {version: by_version[max(first for first in by_version if first <= version)] for version in told}
    if key in MESSAGES:
        assert {version: seen for version, seen in told.items() if seen} == {
            version: seen for version, seen in expected.items() if told[version]
        }
        assert any(told.values())
    else:
        assert all(seen <= {None} for seen in told.values()), told


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.DESCRIBE_CONFIGS, 4), (ApiKey.ALTER_CONFIGS, 2), (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)]
)
def test_config_authorization_errors_have_the_message_of_their_resource_type(
    client: Connection, key: ApiKey, version: int
) -> None:
    request: Any = copy.copy(REQUESTS[key][0][0])
    request.resources = [each for each in request.resources if each.resource_type in CONFIG_TYPES]
    answer = client.ask(request, version)
    told = answer.results if key is ApiKey.DESCRIBE_CONFIGS else answer.responses
    of_broker = (NO_CLUSTER, CLUSTER_MESSAGE if key is ApiKey.DESCRIBE_CONFIGS else None)
    expected = {**CONFIG_TYPES, 4: of_broker}
    assert {each.resource_type: (each.error_code, each.error_message) for each in told} == expected


CONFIG_TYPES = {2: (NO_TOPIC, TOPIC_MESSAGE), 4: (NO_CLUSTER, None), 32: (NO_GROUP, GROUP_MESSAGE)}


def test_delete_permission_on_the_cluster_allows_deleting_each_topic(
    administrator: Connection, client: Connection, new_name: Callable[[], str], name: str
) -> None:
    def delete(wanted: str) -> tuple[int, str | None]:
        state = DeleteTopicsRequest.DeleteTopicState(name=wanted)
        (answer,) = client.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
        return answer.error_code, answer.error_message

    absent = new_name()
    assert [delete(name), delete(absent)] == [(NO_TOPIC, TOPIC_MESSAGE)] * 2
    wanted = creation("kafka-cluster", resource_type=ResourceType.CLUSTER, operation=Operation.DELETE)
    assert create(administrator, wanted) == [MADE]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    try:
        assert repeated(lambda: delete(absent), lambda seen: seen == unknown) == unknown
        assert delete(name) == (ErrorCode.NONE, None)
    finally:
        assert remove(administrator, {"host_filter": CLIENT, "operation": Operation.DELETE}) == (0, ["kafka-cluster"])


def test_a_client_that_may_not_join_a_group_is_given_no_member_id(client: Connection) -> None:
    for version in range(2, 10):
        answer = client.ask(JoinGroupRequest(group_id="g", session_timeout_ms=10_000, member_id="m"), version)
        assert (answer.error_code, answer.member_id) == (NO_GROUP, "")


def test_denied_reassignments_have_the_requested_partitions(client: Connection) -> None:
    shape = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    wanted = [shape(name="t", partition_indexes=[3, -1]), shape(name="", partition_indexes=[])]
    answer = client.ask(ListPartitionReassignmentsRequest(topics=wanted), 0)
    told = [(one.name, [(part.partition_index, part.replicas) for part in one.partitions]) for one in answer.topics]
    assert (answer.error_code, told) == (NO_CLUSTER, [("t", [(3, []), (-1, [])]), ("", [])])
    assert client.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_scram_credentials_require_cluster_permission(client: Connection) -> None:
    shape = DescribeUserScramCredentialsRequest.UserName
    for names in ([], ["u"], ["u", "v", "v"]):
        answer = client.ask(DescribeUserScramCredentialsRequest(users=[shape(name=name) for name in names]), 0)
        assert (answer.error_code, answer.error_message) == (NO_CLUSTER, None)
        told = [(one.user, one.error_code, one.error_message, one.credential_infos) for one in answer.results]
        assert told == [("", NO_CLUSTER, None, [])] * len(names)


# --- what is said before anything about rights ---------------------------------------------------

Listed = ListOffsetsRequest.ListOffsetsTopic
LISTED = Listed(name="t", partitions=[Listed.ListOffsetsPartition(partition_index=0, timestamp=-9)])
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
OldChanged = AlterConfigsRequest.AlterConfigsResource
Described = DescribeConfigsRequest.DescribeConfigsResource
UNKNOWN = Described(resource_type=99, resource_name="x", configuration_keys=None)
KNOWN = Described(resource_type=2, resource_name="t", configuration_keys=None)
TWICE = [Changed.AlterableConfig(name="retention.ms", config_operation=0, value="1")] * 2
NULL = [Changed.AlterableConfig(name="retention.ms", config_operation=0, value=None)]
OLD_NULL = [OldChanged.AlterableConfig(name="retention.ms", value=None)]
LEVEL = [OldChanged.AlterableConfig(name="kafka", value="INFO")]
NOBODY = ElectLeadersRequest(topic_partitions=[], timeout_ms=10_000)
SHARE_KEY = "g:AAAAAAAAAAAAAAAAAAAAAQ:0"


def fetch_as(replica_id: int, version: int) -> FetchRequest:
    asked = FetchRequest.FetchTopic.FetchPartition(partition=0)
    state = FetchRequest.ReplicaState(replica_id=replica_id)
    who = {"replica_id": replica_id} if version < 15 else {"replica_state": state}
    return FetchRequest(
        max_bytes=1 << 20, topics=[FetchRequest.FetchTopic(topic_id=b"\2" * 16, partitions=[asked])], **who
    )


def alters(*resources: Any) -> Message:
    kind: Any = IncrementalAlterConfigsRequest if isinstance(resources[0], Changed) else AlterConfigsRequest
    request: Message = kind(resources=[*resources])
    return request


def describes_producers(name: str) -> Message:
    topic = DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
    return DescribeProducersRequest(topics=[topic])


@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (NOBODY, 1, NO_CLUSTER),
        (NOBODY, 2, NO_CLUSTER),
        (FindCoordinatorRequest(key=SHARE_KEY, key_type=2), 3, INVALID),
        (FindCoordinatorRequest(coordinator_keys=[SHARE_KEY], key_type=2), 5, INVALID),
        (FindCoordinatorRequest(coordinator_keys=[SHARE_KEY], key_type=2), 6, NO_CLUSTER),
        (fetch_as(1, 13), 13, NO_TOPIC),
        (fetch_as(1, 18), 18, NO_TOPIC),
        (fetch_as(-1, 13), 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (ListOffsetsRequest(replica_id=-1, topics=[LISTED]), 7, NO_TOPIC),
        (ListOffsetsRequest(replica_id=-1, topics=[LISTED, LISTED]), 7, NO_TOPIC),
        (DescribeConfigsRequest(resources=[UNKNOWN, KNOWN]), 4, INVALID),
        (alters(OldChanged(resource_type=8, resource_name="1", configs=LEVEL)), 2, INVALID),
        (alters(OldChanged(resource_type=2, resource_name="t", configs=OLD_NULL)), 2, INVALID),
        (alters(Changed(resource_type=2, resource_name="t", configs=NULL)), 1, INVALID),
        (alters(Changed(resource_type=2, resource_name="t", configs=TWICE)), 1, INVALID),
        (alters(Changed(resource_type=8, resource_name="1", configs=TWICE)), 1, INVALID),
        (describes_producers(""), 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (describes_producers("a b"), 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (ShareFetchRequest(group_id="", member_id="m"), 2, NO_GROUP),
        (ShareFetchRequest(group_id=None, member_id="m"), 2, INVALID),
        (ShareAcknowledgeRequest(group_id="", member_id="m"), 2, NO_GROUP),
    ],
)
def test_some_validation_errors_are_returned_before_authorization_errors(
    client: Connection, request_: Message, version: int, code: ErrorCode
) -> None:
    assert set(error_codes(client.ask(request_, version))) - {ErrorCode.NONE} == {code}


@pytest.mark.parametrize("resource_type", [0, 3, 99])
def test_an_unknown_config_resource_type_rejects_all_resources(
    administrator: Connection, name: str, resource_type: int
) -> None:
    wanted = [Described(resource_type=each, resource_name=name) for each in (2, resource_type)]
    results = administrator.ask(DescribeConfigsRequest(resources=wanted), 4).results
    assert [(each.error_code, each.configs) for each in results] == [(INVALID, [])] * 2
