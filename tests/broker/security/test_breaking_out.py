"""Random requests of a user with random rights: nothing may be read, written or learnt that the rules forbid.

All names and values are words that stand nowhere else, so that an answer that has one of them has told it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import SERVED
from minibroker.broker.security.acls import Acl, PatternType, Permission
from minibroker.broker.security.operations import (
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    DESCRIBE_TRANSACTIONAL_ID,
    OPERATIONS,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    ResourceType,
    Right,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.messages import consumer_groups, groups, metadata, offsets, share_groups, transactions
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE
from tests.broker.harness import AUTHORIZED, Harness, Waiting, batch
from tests.broker.security.test_authorizer import slow_verdict
from tests.broker.security.test_operations import GROUP, ID, REQUESTS, TOPIC, streams_heartbeat_request
from tests.clients.share_requests import ACCEPT, acknowledge_request, fetch_request
from tests.sampling import sampled

TOPICS = ["tangerine", "tangelo", "turnip", "thyme"]
ENDED = "tarragon"  # is in a transaction, whose end is written to it
GROUPS, IDS = ["giraffe", "gibbon", "gnu"], ["ibis", "iguana"]
SHARED, STREAMED = "gopher", "gecko"  # a share group and a streams group, each of all topics
ALL_GROUPS = [*GROUPS, SHARED, STREAMED]
TYPES = {
    ResourceType.TOPIC: [*TOPICS, ENDED],
    ResourceType.GROUP: ALL_GROUPS,
    ResourceType.TRANSACTIONAL_ID: IDS,
}
RIGHTS_OF_IDS = [DESCRIBE_TRANSACTIONAL_ID]
WRITING = [
    ApiKey.PRODUCE,
    ApiKey.OFFSET_COMMIT,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_DELETE,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_GROUPS,
]
SHARING = [
    *(ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS),
    *(ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS, ApiKey.STREAMS_GROUP_HEARTBEAT),
    ApiKey.STREAMS_GROUP_DESCRIBE,
]
STEPS = 300


def value_of(topic: str) -> str:
    return f"value-{topic.upper()}"


class Attempt:
    """A cluster with everything in it, a user with random rights, and what these rights allow."""

    def __init__(self, harness: Harness, seed: int) -> None:
        self.harness = harness
        self.source = random.Random(seed)
        self._fill()
        self.acls = [self._random_acl() for _ in range(self.source.randint(0, 15))]
        for acl in self.acls:
            right = Right(acl.operation, acl.resource_type)  # type: ignore[arg-type]
            permission, pattern = Permission(acl.permission), PatternType(acl.pattern_type)
            harness.add_acl(right, acl.name, user="eve", permission=permission, pattern=pattern)
        self.before = self._state()
        topics = harness.cluster.image.topics  # but for those that name groups to whoever may read them
        self.ids = {topic.name: topic.topic_id for topic in topics.values() if not topic.internal}

    def _fill(self) -> None:
        for name in (*TOPICS, ENDED):
            self.harness.create_topic(name, user="admin")
            self.harness.produce_batch(name, batch(value_of(name)), user="admin")
        for kind, key in (*((0, group) for group in GROUPS), *((1, id) for id in IDS)):
            request = groups.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            self.harness.request(request, user="admin")
        for group in GROUPS:
            shape = offsets.OffsetCommitRequest.OffsetCommitRequestTopic
            partition = shape.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
            committed = [shape(name=name, partitions=[partition]) for name in TOPICS]
            request = offsets.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=committed)
            self.harness.request(request, 9, user="admin")
        for id in IDS:
            begin = transactions.InitProducerIdRequest(transactional_id=id, transaction_timeout_ms=60_000)
            given = self.harness.request(begin, user="admin")
            shape = transactions.AddPartitionsToTxnRequest
            add = shape(
                v3_and_below_transactional_id=id,
                v3_and_below_producer_id=given.producer_id,
                v3_and_below_producer_epoch=given.producer_epoch,
                v3_and_below_topics=[shape.AddPartitionsToTxnTopic(name=ENDED, partitions=[0])],
            )
            self.harness.request(add, 3, user="admin")
        self._fill_share_group()
        heartbeat = streams_heartbeat_request(STREAMED)
        heartbeat.topology.subtopologies[0].source_topics = list(TOPICS)
        assert self.harness.request(heartbeat, user="admin").error_code == 0

    def _fill_share_group(self) -> None:
        """A share group without members, which is to read all topics from their start."""
        self.harness.cluster.controller.change_config(GROUP_RESOURCE, SHARED, {"share.auto.offset.reset": "earliest"})
        for epoch in (0, -1):
            heartbeat = share_groups.ShareGroupHeartbeatRequest(
                group_id=SHARED, member_id="m", member_epoch=epoch, subscribed_topic_names=list(TOPICS)
            )
            assert self.harness.request(heartbeat, user="admin").error_code == 0

    def _random_acl(self) -> Acl:
        kind = self.source.choice(list(TYPES))
        rights = OPERATIONS.get(kind, RIGHTS_OF_IDS)
        name = self.source.choice([*TYPES[kind], "*", TYPES[kind][0][:3]])
        pattern = self.source.choice([PatternType.LITERAL, PatternType.LITERAL, PatternType.PREFIXED])
        permission = self.source.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY])
        return Acl(kind, name, pattern, "User:eve", "*", self.source.choice(rights).operation, permission)

    def allows(self, right: Right, name: str) -> bool:
        return slow_verdict(self.acls, right, name, "User:eve", "127.0.0.1", without_acl=False)

    def _state(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """The ends of the topics' logs, and the offsets by group and topic."""
        topics = self.harness.cluster.image.topics
        ends = {name: topics[name].partitions[0].log.log_end_offset for name in TOPICS if name in topics}
        shape = offsets.OffsetFetchRequest.OffsetFetchRequestGroup
        request = offsets.OffsetFetchRequest(groups=[shape(group_id=group, topics=None) for group in GROUPS])
        committed = {
            (group.group_id, topic.name): topic.partitions[0].committed_offset
            for group in self.harness.request(request, 9, user="admin").groups
            for topic in group.topics
        }
        return ends, committed

    # --- what is asked ----------------------------------------------------------------------------

    def random_request(self) -> tuple[Message, int]:
        request = self.source.choice(list(self._requests()))
        return request, self.source.choice(SERVED[request.api_key].versions)

    def _requests(self) -> Iterator[Message]:
        """One request of any API about something that exists or not, one that writes, one for all, and one by id."""
        names = {
            TOPIC: self.source.choice([*TOPICS, "absent"]),
            GROUP: self.source.choice([*GROUPS, "nobody"]),
            **dict.fromkeys(("s", "empty"), SHARED),
            **dict.fromkeys(("a", "streams"), STREAMED),
            ID: self.source.choice([*IDS, "nothing"]),
        }
        for keys in (list(REQUESTS), WRITING, SHARING):
            request, _ = self.source.choice(REQUESTS[self.source.choice(keys)])
            request = request(self.harness) if callable(request) else request
            yield renamed(copy.deepcopy(request), names)
        group = offsets.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=names[GROUP], topics=None)
        yield self.source.choice(
            [
                metadata.MetadataRequest(topics=None, include_topic_authorized_operations=True),
                metadata.DescribeTopicPartitionsRequest(topics=[]),
                groups.ListGroupsRequest(),
                transactions.ListTransactionsRequest(),
                offsets.OffsetFetchRequest(groups=[group]),
                offsets.OffsetFetchRequest(group_id=names[GROUP], topics=None),
                self._heartbeat(names[GROUP]),
            ]
        )
        id = self.source.choice(list(self.ids.values()))
        topic = FetchRequest.FetchTopic(
            topic_id=id, partitions=[FetchRequest.FetchTopic.FetchPartition(partition_max_bytes=1 << 20)]
        )
        yield self.source.choice(
            [
                FetchRequest(max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, topics=[topic]),
                metadata.MetadataRequest(
                    topics=[metadata.MetadataRequest.MetadataRequestTopic(name=None, topic_id=id)]
                ),
            ]
        )
        yield self.source.choice(
            [
                fetch_request(id, (), group_id=SHARED, member_id="eve"),
                acknowledge_request(id, [(0, 0, [ACCEPT])], group_id=SHARED, member_id="eve", share_session_epoch=1),
            ]
        )

    def _heartbeat(self, group: str) -> Message:
        return consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=f"{group[:-1]}-of-eve",  # which does not contain the name of another
            member_id="eve",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=None,
            subscribed_topic_regex=".*",
            topic_partitions=[],
        )

    # --- what may come of it ----------------------------------------------------------------------

    def check_told(self, request: bytes, answer: bytes) -> None:
        for right, words in (
            (DESCRIBE_TOPIC, {name: name.encode() for name in (*TOPICS, ENDED)}),
            (DESCRIBE_TOPIC, {name: self.ids[name] for name in (*TOPICS, ENDED)}),
            (READ_TOPIC, {name: value_of(name).encode() for name in (*TOPICS, ENDED)}),
            (DESCRIBE_GROUP, {name: name.encode() for name in ALL_GROUPS}),
            (DESCRIBE_TRANSACTIONAL_ID, {name: name.encode() for name in IDS}),
        ):
            told = {name for name, word in words.items() if word in answer and word not in request}
            forbidden = {name for name in told if not self.allows(right, name)}
            assert not forbidden, (right, forbidden, self.acls)

    def check_written(self) -> None:
        (ends, committed), (ends_after, committed_after) = self.before, self._state()
        topics = self.harness.cluster.image.topics
        for name, end in ends.items():
            is_there = name in topics and topics[name].topic_id == self.ids[name]  # or a new one has its name
            assert is_there or self.allows(DELETE_TOPIC, name), (name, self.acls)
            is_written = ends_after.get(name, 0) != (end if is_there else 0)
            assert not is_written or self.allows(WRITE_TOPIC, name), (name, self.acls)
        for (group, name), offset in committed.items():
            may_commit = self.allows(READ_GROUP, group) and self.allows(READ_TOPIC, name)
            may_delete = self.allows(DELETE_GROUP, group) or self.allows(DELETE_TOPIC, name)
            kept = committed_after.get((group, name)) == offset
            assert kept or may_commit or may_delete, (group, name, self.acls)


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same with other names in the place of those in REQUESTS."""
    if isinstance(value, str):
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    if isinstance(value, Struct):
        for field in value.__fields__:
            setattr(value, field, renamed(getattr(value, field), names))
    return value


@pytest.mark.parametrize("seed", sampled(range(16), every=5))
def test_random_requests_of_a_restricted_user_stay_within_its_permissions(tmp_path: Path, seed: int) -> None:
    with Harness(tmp_path, settings=AUTHORIZED) as harness:
        attempt = Attempt(harness, seed)
        answered = 0
        for _ in range(STEPS):
            request, version = attempt.random_request()
            try:
                encoded = request.encode(version)
            except (ValueError, AttributeError, TypeError):
                continue  # the version has no way to say it
            try:
                answer = harness.request(request, version, user="eve")
            except UnanswerableRequest:
                continue
            if answer is not None and not isinstance(answer, Waiting):
                answered += 1
                attempt.check_told(encoded, answer.encode(version))
            harness.clock.advance(10)
        attempt.check_written()
        assert answered > STEPS / 2
