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

from minibroker.broker.requests.routes import Unanswerable
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
from minibroker.protocol.messages import consumer_groups, groups, metadata, offsets, transactions
from minibroker.protocol.messages.fetch import FetchRequest
from tests.broker.harness import AUTHORIZED, Harness, Waiting, batch
from tests.broker.security.test_authorizer import slow_verdict
from tests.broker.security.test_operations import GROUP, ID, REQUESTS, TOPIC

TOPICS = ["tangerine", "tangelo", "turnip", "thyme"]
ENDED = "tarragon"  # is in a transaction, whose end is written to it
GROUPS, IDS = ["giraffe", "gibbon", "gnu"], ["ibis", "iguana"]
TYPES = {
    ResourceType.TOPIC: [*TOPICS, ENDED],
    ResourceType.GROUP: GROUPS,
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
        self.ids = {topic.name: topic.topic_id for topic in harness.cluster.image.topics.values()}

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
            ID: self.source.choice([*IDS, "nothing"]),
        }
        for keys in (list(REQUESTS), WRITING):
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

    def _heartbeat(self, group: str) -> Message:
        return consumer_groups.ConsumerGroupHeartbeatRequest(
            group_id=f"{group}-of-eve",
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
            (DESCRIBE_GROUP, {name: name.encode() for name in GROUPS}),
            (DESCRIBE_TRANSACTIONAL_ID, {name: name.encode() for name in IDS}),
        ):
            told = {name for name, word in words.items() if word in answer and word not in request}
            forbidden = {name for name in told if not self.allows(right, name)}
            assert not forbidden, (right, forbidden, self.acls)

    def check_written(self) -> None:
        (ends, committed), (ends_after, committed_after) = self.before, self._state()
        for name, end in ends.items():
            gone = name not in ends_after
            right = DELETE_TOPIC if gone else WRITE_TOPIC
            assert (not gone and ends_after[name] == end) or self.allows(right, name), (right, name, self.acls)
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


@pytest.mark.parametrize("seed", range(16))
def test_nobody_breaks_out(tmp_path: Path, seed: int) -> None:
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
            except Unanswerable:
                continue
            if answer is not None and not isinstance(answer, Waiting):
                answered += 1
                attempt.check_told(encoded, answer.encode(version))
            harness.clock.advance(10)
        attempt.check_written()
        assert answered > STEPS / 2
