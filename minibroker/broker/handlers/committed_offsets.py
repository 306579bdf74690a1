"""OffsetCommit and OffsetFetch: how far a group has come.

Behaviour: a commit is one batch in `__consumer_offsets`, so that all of it is there after a crash or nothing, and is
answered once it is as safe as that topic asks for. Partitions that there are not are refused one by one, and so is
metadata of more than `offset.metadata.max.bytes` characters; whatever else is wrong, a generation or a member, is
answered for all that are left. Whoever is no member (a consumer by assign, an administrator: no member id, generation
-1) may commit for a group without members, which is made if there is none. A fetch for a group or partition that is not
known answers -1 and no error. The empty group id is taken, as by Kafka. With `require_stable`, a partition of which a
transaction is still to commit an offset is answered with UNSTABLE_OFFSET_COMMIT.

Versions of OffsetCommit: 1 brought members and, alone, the time of the commit, 2 to 4 how long to keep it, 6 leader
epochs, 7 static members, 9 member epochs, 10 topic ids. Versions of OffsetFetch: 0 answers UNKNOWN_TOPIC_OR_PARTITION
where nothing is committed, 2 brought an error of the whole answer and "all topics", 5 leader epochs, 7 require_stable,
8 several groups, 9 members, 10 topic ids. Version 0 of both was Kafka's way into ZooKeeper: every node takes it,
whoever coordinates the group, and here it sees the same offsets as the others. OffsetFetch is served from 0 also
because librdkafka 2.16 sends it without looking whether it is announced.

Not implemented: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.broker.coordination.coordinators import coordinator_of_group
from minibroker.broker.groups.offsets import NO_EXPIRY, CommittedOffset, CommittedOffsets
from minibroker.broker.metadata.partitions import Topic
from minibroker.broker.requests.dispatch import Context, handles
from minibroker.broker.requests.namings import Namings
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import Steps, at_once, chunks, each, each_in_steps

if TYPE_CHECKING:
    from minibroker.broker.groups.group import CheckPartition

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
CommitTopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
CommitAnswer = CommitTopicAnswer.OffsetCommitResponsePartition
AskedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
AskedTopic = AskedGroup.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic = Group.OffsetFetchResponseTopics
FetchedPartition = FetchedTopic.OffsetFetchResponsePartitions
OldTopic = OffsetFetchResponse.OffsetFetchResponseTopic
OldPartition = OldTopic.OffsetFetchResponsePartition

NO_OFFSET = -1
COUNTED_AT_ONCE = 1000  # partitions, of which there are offsets
FEW = 100  # partitions, whose offsets are committed without a pause
LATEST_MS = (1 << 63) - 1  # int64: how long to keep an offset is said by clients, and may be beyond all time
NOT_SAID = -1  # a timestamp or a retention that the client left to the broker
FIRST_WITH_COORDINATORS = 1
FIRST_WITH_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_GROUP_NOT_FOUND = 9
FIRST_WITH_TOPIC_IDS = 10


class Asked(NamedTuple):
    """A partition that there is, with what the request says of it and its place in the answer.

    `said_id` is the topic's id if the request names it, zero otherwise.
    """

    topic: Topic
    said_id: bytes
    partition: CommitPartition
    answer: CommitAnswer


@handles(ApiKey.OFFSET_COMMIT, "0-10")
def offset_commit(context: Context, request: OffsetCommitRequest) -> Any:
    steps = _offset_commit(context, request)
    asked = len(request.topics)
    for topic in request.topics:
        asked += len(topic.partitions)
    return steps if asked > FEW else at_once(steps)


def _offset_commit(context: Context, request: OffsetCommitRequest) -> Steps[OffsetCommitResponse]:
    from minibroker.broker.groups.commits import wait_for_offsets  # no start is to wait for it

    response = OffsetCommitResponse()
    asked: list[Asked] = []
    for topic in request.topics:
        asked += yield from _existing(context, topic, response)
        yield
    try:
        committed = yield from _committed(context, request, asked)
        if committed:
            wait_for_offsets(context, request.group_id, lambda error: _refuse(committed, error))
    except KafkaError as error:
        _refuse(asked, error)
    return response


def _existing(context: Context, topic: CommitTopic, response: OffsetCommitResponse) -> Steps[list[Asked]]:
    """The partitions of a topic that there are. The answer gets all of them, the others with what is wrong."""
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    image = context.cluster.image
    found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id and found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = CommitTopicAnswer(name=topic.name, topic_id=topic.topic_id)
    if topic.partitions or found is None:  # as Kafka, which says nothing of a topic of which nothing is asked
        response.topics.append(answers)
    asked: list[Asked] = []
    for partition in topic.partitions:
        yield
        answer = CommitAnswer(partition_index=partition.partition_index, error_code=unknown)
        answers.partitions.append(answer)
        if found is not None and found.partition(partition.partition_index) is not None:
            answer.error_code = ErrorCode.NONE
            asked.append(Asked(found, topic.topic_id, partition, answer))
    return asked


def _refuse(asked: Iterable[Asked], error: KafkaError) -> None:
    for one in asked:
        one.answer.error_code = error.code


def _committed(context: Context, request: OffsetCommitRequest, asked: Sequence[Asked]) -> Steps[list[Asked]]:
    """Record what is asked for, and apply it; those of `asked` for which that was done. Raises KafkaError for all."""
    from minibroker.broker.groups.commits import commit_offsets

    groups = context.cluster.groups
    coordinator = context.node
    if context.version < FIRST_WITH_COORDINATORS:
        coordinator = coordinator_of_group(context.cluster, request.group_id)
    limit = context.cluster.settings["offset.metadata.max.bytes"]
    accepted, offsets = [], []
    for one in asked:
        yield
        if java_length(one.partition.committed_metadata or "") > limit:
            one.answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        accepted.append(one)
        committed = _offset(context, request.retention_time_ms, one)
        offsets.append((one.topic.name, one.partition.partition_index, committed))

    def check() -> None:
        groups.check_node(coordinator, request.group_id)
        check_topics(context, (one.topic for one in accepted))
        check_partition = _check_committer(context, request)
        if check_partition is not None:
            for one in accepted:
                check_partition(one.topic.name, one.topic.topic_id, one.partition.partition_index)

    yield from commit_offsets(groups, request.group_id, offsets, check)
    return accepted


def check_topics(context: Context, topics: Iterable[Topic]) -> None:
    """Raises KafkaError(COORDINATOR_LOAD_IN_PROGRESS), so that the client asks again, if one has been deleted."""
    known = context.cluster.image.topics_by_id
    for topic in topics:
        if topic.topic_id not in known:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{topic.name} was deleted meanwhile.")


def java_length(text: str) -> int:
    """The length as Java counts it: in UTF-16 code units."""
    return len(text.encode("utf-16-le")) // 2


def _check_committer(context: Context, request: OffsetCommitRequest) -> CheckPartition | None:
    """Whether who asks may commit; what is to be checked of each partition. Raises KafkaError."""
    group = context.cluster.groups.groups.get(request.group_id)
    epoch = request.generation_id_or_member_epoch
    if group is not None:
        return group.check_commit(
            request.member_id, request.group_instance_id, epoch, transactional=False, version=context.version
        )
    if epoch >= 0:
        newer = context.version >= FIRST_WITH_GROUP_NOT_FOUND
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
    return None


def _offset(context: Context, retention_ms: int, asked: Asked) -> CommittedOffset:
    now_ms, partition = context.cluster.clock.wall_ms(), asked.partition
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms if partition.commit_timestamp == NOT_SAID else partition.commit_timestamp,
        NO_EXPIRY if retention_ms == NOT_SAID else min(now_ms + retention_ms, LATEST_MS),
        asked.said_id,
    )


# --- OffsetFetch --------------------------------------------------------------------------------


@handles(ApiKey.OFFSET_FETCH, "0-10")
def offset_fetch(context: Context, request: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    if context.version < FIRST_WITH_SEVERAL_GROUPS:
        group = yield from _group(context, request, _as_group(request))
        return (yield from _only_group(group, request, context.version))
    response = OffsetFetchResponse()
    namings = Namings()
    for asked in request.groups:
        try:
            namings.add(asked.group_id)
            response.groups.append((yield from _group(context, request, asked)))
        except KafkaError as error:
            response.groups.append(Group(group_id=asked.group_id, error_code=error.code))
        yield
    return response


def _as_group(request: OffsetFetchRequest) -> AskedGroup:
    """Return the question of a request for one group in the form of one for several."""
    topics = None
    if request.topics is not None:
        topics = [AskedTopic(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
    return AskedGroup(group_id=request.group_id, topics=topics)


def _only_group(group: Group, request: OffsetFetchRequest, version: int) -> Steps[OffsetFetchResponse]:
    """The answer for one group. Without a place for an error of the whole, each partition has it."""
    topics = group.topics
    if group.error_code != ErrorCode.NONE and version < FIRST_WITH_ERROR:
        topics = yield from each_in_steps(partial(_refused_topic, code=group.error_code), request.topics or ())
    old = yield from each_in_steps(partial(_old_topic, version=version), topics)
    return OffsetFetchResponse(error_code=group.error_code, topics=old)


def _refused_topic(topic: OffsetFetchRequest.OffsetFetchRequestTopic, code: int) -> Steps[FetchedTopic]:
    partitions = yield from each(partial(_none, code=code), topic.partition_indexes)
    return FetchedTopic(name=topic.name, partitions=partitions)


def _old_topic(topic: FetchedTopic, version: int) -> Steps[OldTopic]:
    partitions = yield from each(partial(_old_partition, version=version), topic.partitions)
    return OldTopic(name=topic.name, partitions=partitions)


def _old_partition(one: FetchedPartition, version: int) -> OldPartition:
    """Return the answer in the form of versions before 8; in version 0 an uncommitted offset is an error."""
    code = one.error_code
    if version == 0 and one.committed_offset == NO_OFFSET and code == ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OldPartition(
        partition_index=one.partition_index,
        committed_offset=one.committed_offset,
        committed_leader_epoch=one.committed_leader_epoch,
        metadata=one.metadata if version > 0 else "",
        error_code=code,
    )


def _group(context: Context, request: OffsetFetchRequest, asked: AskedGroup) -> Steps[Group]:
    groups = context.cluster.groups
    try:
        if context.version >= FIRST_WITH_COORDINATORS:
            groups.check_node(context.node, asked.group_id)
        elif groups.topic.topic is not None:
            groups.check_node(groups.node_of(asked.group_id) or context.node, asked.group_id)
        group = groups.groups.get(asked.group_id)
        if group is not None:
            group.check_fetch(asked.member_id, asked.member_epoch)
    except KafkaError as error:
        return Group(group_id=asked.group_id, error_code=error.code)
    offsets = CommittedOffsets() if group is None else group.offsets
    fetch = Fetching(context, offsets, request.require_stable)
    if asked.topics is None:
        topics = yield from fetch.all()
    else:
        topics = yield from each_in_steps(fetch.asked, asked.topics)
    return Group(group_id=asked.group_id, topics=topics)


class Fetching:
    """Reads the offsets of one group for an answer."""

    def __init__(self, context: Context, offsets: CommittedOffsets, require_stable: bool) -> None:
        self._image = context.cluster.image
        self._offsets = offsets
        self._stable = require_stable
        self._by_id = context.version >= FIRST_WITH_TOPIC_IDS

    def all(self) -> Steps[list[FetchedTopic]]:
        """Every topic of which there is an offset; where topics have ids, those that still exist."""
        indexes: dict[str, list[int]] = {}
        for portion in chunks(list(self._offsets.by_partition), COUNTED_AT_ONCE):
            for name, index in portion:
                indexes.setdefault(name, []).append(index)
            yield
        answers = []
        for name, found in indexes.items():
            topic = self._image.topics.get(name)
            if topic is not None:
                answers.append((yield from self._topic(name, topic.topic_id, ZERO_UUID, found)))
            elif not self._by_id:
                answers.append((yield from self._topic(name, ZERO_UUID, ZERO_UUID, found)))
        return answers

    def asked(self, topic: AskedTopic) -> Steps[FetchedTopic]:
        """The partitions that were asked for."""
        if not self._by_id:
            return (yield from self._topic(topic.name, ZERO_UUID, ZERO_UUID, topic.partition_indexes))
        found = self._image.topics_by_id.get(topic.topic_id)
        if found is not None:
            return (yield from self._topic(found.name, topic.topic_id, topic.topic_id, topic.partition_indexes))
        unknown = yield from each(partial(_none, code=ErrorCode.UNKNOWN_TOPIC_ID), topic.partition_indexes)
        return FetchedTopic(topic_id=topic.topic_id, partitions=unknown)

    def _topic(self, name: str, topic_id: bytes, expected_id: bytes, indexes: Iterable[int]) -> Steps[FetchedTopic]:
        partitions = yield from each(lambda index: self._partition(name, index, expected_id), indexes)
        return FetchedTopic(name=name, topic_id=topic_id, partitions=partitions)

    def _partition(self, name: str, index: int, expected_id: bytes) -> FetchedPartition:
        if self._stable and self._offsets.is_unstable(name, index):
            return _none(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._offsets.find(name, index, expected_id)
        if committed is None:
            return _none(index, ErrorCode.NONE)
        return FetchedPartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _none(index: int, code: int) -> FetchedPartition:
    return FetchedPartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)
