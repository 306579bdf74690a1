"""OffsetCommit and OffsetFetch: the offsets that a group has committed.

Behaviour: a commit is one batch in `__consumer_offsets`, so a crash keeps all of it or nothing. It is answered when
the batch is as durable as that topic's settings ask for. Unknown partitions are refused one by one, and so is metadata
of more than `offset.metadata.max.bytes` characters. Any other error, such as an unknown member or a wrong generation,
concerns all remaining partitions. A client that is no member (a consumer with manual assignment or an admin client: no
member id, generation -1) may commit for a group without members, and the commit creates the group if need be. A fetch
for an unknown group or partition is answered with -1 and no error. The empty group id is allowed, as in Kafka. With
`require_stable`, partitions with an offset in an open transaction are answered with UNSTABLE_OFFSET_COMMIT.

Versions of OffsetCommit: 1 brought members; only 1 has the time of the commit, and only 2 to 4 its retention time; 6
brought leader epochs, 7 static members, 9 member epochs, 10 topic ids. Versions of OffsetFetch: 0 answers
UNKNOWN_TOPIC_OR_PARTITION where nothing is committed, 2 brought an error for the whole answer and "all topics", 5
leader epochs, 7 require_stable, 8 several groups, 9 members, 10 topic ids. In version 0 of both, Kafka used ZooKeeper:
every node accepts it, also one that does not coordinate the group; here it sees the same offsets as later versions.
OffsetFetch 0 is needed also because librdkafka 2.16 sends it without looking whether it is supported.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.groups.offsets_of_group import NO_EXPIRY, CommittedOffset, CommittedOffsets
from minibroker.broker.metadata.partitions import Topic
from minibroker.broker.requests.context import NameRepetitions, RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import DESCRIBE_GROUP, DESCRIBE_TOPIC, READ_GROUP, READ_TOPIC
from minibroker.broker.turn import Refuse
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import (
    Steps,
    apply_to_items_in_steps,
    fits_in_one_step,
    run_all_steps,
    run_steps_of_each_item,
    split_into_portions,
)

if TYPE_CHECKING:
    from minibroker.broker.groups.commits import CommittedPartition
    from minibroker.broker.groups.group import CheckPartition
    from minibroker.broker.groups.group_coordinator import GroupCoordinator

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
CommitTopicAnswer = OffsetCommitResponse.OffsetCommitResponseTopic
CommitAnswer = CommitTopicAnswer.OffsetCommitResponsePartition
RequestedGroup = OffsetFetchRequest.OffsetFetchRequestGroup
RequestedTopic = RequestedGroup.OffsetFetchRequestTopics
Group = OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic = Group.OffsetFetchResponseTopics
FetchedPartition = FetchedTopic.OffsetFetchResponsePartitions
OldTopic = OffsetFetchResponse.OffsetFetchResponseTopic
OldPartition = OldTopic.OffsetFetchResponsePartition

NO_OFFSET = -1
COUNTED_AT_ONCE = 1000  # partitions with offsets, in one step
LATEST_MS = (1 << 63) - 1  # int64: the retention time of a client may lead beyond it
NOT_SAID = -1  # the client leaves the timestamp or the retention time to the broker
FIRST_WITH_COORDINATORS = 1
FIRST_WITH_ERROR = 2
FIRST_WITH_SEVERAL_GROUPS = 8
FIRST_WITH_GROUP_NOT_FOUND = 9
FIRST_WITH_TOPIC_IDS = 10
NOT_DURABLE_YET = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The offsets are not on the disk yet.")


@handles(ApiKey.OFFSET_COMMIT)
def offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Coroutine[Any, Any, OffsetCommitResponse]:
    steps = OffsetCommit(context, request).commit_requested_offsets()
    return (
        run_all_steps(steps) if fits_in_one_step(topic.partitions for topic in request.topics) else run_in_slices(steps)
    )


@cache
def _import_commits_module() -> ModuleType:
    from minibroker.broker.groups import commits  # imported late, for a fast start

    return commits


@cache
def _import_commit_template_module() -> ModuleType:
    from minibroker.broker.handlers import commit_template

    return commit_template


class OffsetCommit:
    """One OffsetCommit.

    `_asked` has the answers for partitions that exist, `_accepted` those for valid offsets, and `_has_missing` says
    that there are others.
    """

    __slots__ = ("_accepted", "_asked", "_context", "_has_missing", "_offsets", "_request", "_response", "_topics")

    def __init__(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._response = OffsetCommitResponse()
        self._topics: dict[str, Topic] = {}
        self._asked: list[CommitAnswer] = []
        self._accepted: list[CommitAnswer] = []
        self._offsets: list[CommittedPartition] = []
        self._has_missing = False

    def commit_requested_offsets(self) -> Steps[OffsetCommitResponse]:
        """Commit the offsets, and return the answer."""
        for topic in self._request.topics:
            known_topic = self._authorize_and_find_topic(topic)
            for portion in split_into_portions(topic.partitions):
                self._collect_offsets(*known_topic, portion)
                yield
            yield
        self._put_unknown_partitions_first()
        yield
        try:
            yield from _import_commits_module().commit_offsets(
                self._find_coordinator(), self._request.group_id, self._offsets, self._check_offset_commit
            )
            if self._accepted:
                delay_until_offsets_durable(
                    self._context, self._request.group_id, partial(_set_error_of_offsets, self._accepted)
                )
                _import_commit_template_module().remember_commit_template(
                    self._context, self._request, self._offsets, self._response
                )
        except KafkaError as error:
            _set_error_of_offsets(self._asked, error)
        return self._response

    def _authorize_and_find_topic(self, topic: CommitTopic) -> tuple[Topic | None, ErrorCode, CommitTopicAnswer]:
        """Return the topic, or None with the error for its partitions, and the topic's part of the answer."""
        context = self._context
        key = topic.topic_id if context.version >= FIRST_WITH_TOPIC_IDS else topic.name
        known, unknown = None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            context.authorize(READ_GROUP, self._request.group_id)
            context.authorize_topic(READ_TOPIC, key)
            known = context.find_topic(key)
        except KafkaError as error:
            unknown = error.code
        answer = CommitTopicAnswer(name=topic.name, topic_id=topic.topic_id)
        if topic.partitions or known is None:  # as in Kafka, a topic without partitions is left out of the answer
            self._response.topics.append(answer)
        if known is not None:
            self._topics.setdefault(known.name, known)
        return known, unknown, answer

    def _collect_offsets(
        self,
        topic: Topic | None,
        unknown_topic_code: ErrorCode,
        answers: CommitTopicAnswer,
        partitions: Iterable[CommitPartition],
    ) -> None:
        """Collect the valid offsets for partitions of a topic; add the answer of each partition to `answers`."""
        name, count = ("", 0) if topic is None else (topic.name, len(topic.partitions))
        cluster, retention_ms = self._context.cluster, self._request.retention_time_ms
        limit, now_ms = cluster.settings["offset.metadata.max.bytes"], cluster.clock.wall_ms()
        expire_ms = NO_EXPIRY if retention_ms == NOT_SAID else min(now_ms + retention_ms, LATEST_MS)
        for partition in partitions:
            index, metadata = partition.partition_index, partition.committed_metadata or ""
            answer = CommitAnswer(partition_index=index)
            answers.partitions.append(answer)
            if not 0 <= index < count:
                answer.error_code, self._has_missing = unknown_topic_code, True
                continue
            self._asked.append(answer)
            if metadata and count_utf16_units(metadata) > limit:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            self._accepted.append(answer)
            said_ms = partition.commit_timestamp
            commit_ms = now_ms if said_ms == NOT_SAID else said_ms
            offset, epoch = partition.committed_offset, partition.committed_leader_epoch
            said = offset, epoch, metadata, commit_ms, expire_ms, answers.topic_id
            self._offsets.append((name, index, tuple.__new__(CommittedOffset, said)))  # twice as fast as calling it

    def _put_unknown_partitions_first(self) -> None:
        """Sort the answers of each topic as `put_unknown_partitions_first` does, if need be."""
        if self._has_missing:
            for topic in self._response.topics:
                put_unknown_partitions_first(topic.partitions)

    def _find_coordinator(self) -> GroupCoordinator:
        """Return the coordinator of groups. Version 0 creates its topic if need be. Raises KafkaError."""
        groups = self._context.cluster.groups
        if self._context.version < FIRST_WITH_COORDINATORS:
            find_coordinator_or_create_topic(groups, self._request.group_id)
        return groups

    def _check_offset_commit(self) -> None:
        """Raise KafkaError if nothing may be committed now."""
        context, group_id = self._context, self._request.group_id
        if context.version >= FIRST_WITH_COORDINATORS:
            context.cluster.groups.check_is_coordinator(context.node, group_id)
        check_topics_not_deleted(context, self._topics.values())
        check_partition = _check_committing_member(context, self._request)
        if check_partition is not None:
            for name, index, _ in self._offsets:
                check_partition(name, self._topics[name].topic_id, index)


def put_unknown_partitions_first(answers: list[Any]) -> None:
    """Sort answers of a topic's partitions: those that do not exist come first, as in Kafka."""
    answers.sort(key=lambda answer: answer.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _set_error_of_offsets(answers: Iterable[CommitAnswer], error: KafkaError) -> None:
    for answer in answers:
        answer.error_code = error.code


def delay_until_offsets_durable(context: RequestContext, group_id: str, set_error: Refuse) -> None:
    """Delay the answer until the records appended for a group are durable. Raises KafkaError.

    After `offsets.commit.timeout.ms` answer COORDINATOR_NOT_AVAILABLE: whether they will be durable is unknown then.
    """
    wait = context.cluster.groups.make_durability_wait(group_id)
    too_late = (context.cluster.settings["offsets.commit.timeout.ms"], NOT_DURABLE_YET) if wait.synced else None
    context.delay_answer_until_wait_is_over(wait, set_error, too_late)


def check_topics_not_deleted(context: RequestContext, topics: Iterable[Topic]) -> None:
    """Raise KafkaError(COORDINATOR_LOAD_IN_PROGRESS) if a topic has been deleted, so that the client asks again."""
    for topic in topics:
        if context.find_topic(topic.topic_id) is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{topic.name} was deleted meanwhile.")


def count_utf16_units(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as Java counts it."""
    return len(text.encode("utf-16-le")) // 2


def _check_committing_member(context: RequestContext, request: OffsetCommitRequest) -> CheckPartition | None:
    """Check that the client may commit; return a function that checks each partition, or None. Raises KafkaError."""
    group = context.cluster.groups.groups.get(request.group_id)
    epoch = request.generation_id_or_member_epoch
    if group is not None:
        return group.check_offset_commit(
            request.member_id, request.group_instance_id, epoch, transactional=False, version=context.version
        )
    if epoch >= 0:
        newer = context.version >= FIRST_WITH_GROUP_NOT_FOUND
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND if newer else ErrorCode.ILLEGAL_GENERATION)
    return None


# --- OffsetFetch --------------------------------------------------------------------------------


@handles(ApiKey.OFFSET_FETCH)
async def offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version < FIRST_WITH_SEVERAL_GROUPS:
        group = await run_in_slices(_fetch_offsets_of_group(context, request, _convert_to_group_request(request)))
        answer = await run_in_slices(_convert_to_response_of_version(group, request, context.version))
        _delay_until_offsets_written(context, group, partial(_set_error_of_only_group, answer))
        return answer
    response = OffsetFetchResponse()
    namings = NameRepetitions()
    for asked in request.groups:
        try:
            namings.count_or_refuse_name(asked.group_id)
            group = await run_in_slices(_fetch_offsets_of_group(context, request, asked))
            _delay_until_offsets_written(context, group, partial(_set_error_of_group, group))
            response.groups.append(group)
        except KafkaError as error:
            response.groups.append(Group(group_id=asked.group_id, error_code=error.code))
        await pause()
    return response


def _delay_until_offsets_written(context: RequestContext, group: Group, set_error: Refuse) -> None:
    """Delay the answer until the group's offsets are written, so that no crash undoes what the client has seen."""
    groups = context.cluster.groups
    if group.error_code == ErrorCode.NONE and groups.log.topic is not None:
        try:
            context.delay_answer_until_wait_is_over(groups.make_wait_for_pending_write(group.group_id), set_error)
        except KafkaError as error:
            set_error(error)


def _set_error_of_group(group: Group, error: KafkaError) -> None:
    group.error_code, group.topics = error.code, []


def _set_error_of_only_group(answer: OffsetFetchResponse, error: KafkaError) -> None:
    answer.error_code = error.code
    for topic in answer.topics:  # versions 0 and 1 have no error for the whole answer
        for one in topic.partitions:
            one.committed_offset, one.error_code = NO_OFFSET, error.code


def _convert_to_group_request(request: OffsetFetchRequest) -> RequestedGroup:
    """Return a request for one group (before version 8) as one of the groups of a newer request."""
    topics = None
    if request.topics is not None:
        topics = [RequestedTopic(name=each.name, partition_indexes=each.partition_indexes) for each in request.topics]
    return RequestedGroup(group_id=request.group_id, topics=topics)


def _convert_to_response_of_version(
    group: Group, request: OffsetFetchRequest, version: int
) -> Steps[OffsetFetchResponse]:
    """Return the response for one group. Put its error into each partition if the version has no field for it."""
    topics = group.topics
    if group.error_code != ErrorCode.NONE and version < FIRST_WITH_ERROR:
        topics = yield from run_steps_of_each_item(
            partial(_make_topic_error_answer, code=group.error_code), request.topics or ()
        )
    old = yield from run_steps_of_each_item(partial(_convert_topic_to_version, version=version), topics)
    return OffsetFetchResponse(error_code=group.error_code, topics=old)


def _make_topic_error_answer(topic: OffsetFetchRequest.OffsetFetchRequestTopic, code: int) -> Steps[FetchedTopic]:
    partitions = yield from apply_to_items_in_steps(
        partial(_make_answer_without_offset, code=code), topic.partition_indexes
    )
    return FetchedTopic(name=topic.name, partitions=partitions)


def _convert_topic_to_version(topic: FetchedTopic, version: int) -> Steps[OldTopic]:
    partitions = yield from apply_to_items_in_steps(
        partial(_convert_partition_to_version, version=version), topic.partitions
    )
    return OldTopic(name=topic.name, partitions=partitions)


def _convert_partition_to_version(partition: FetchedPartition, version: int) -> OldPartition:
    """Return the answer in the form of versions before 8; in version 0 an uncommitted offset is an error."""
    code = partition.error_code
    if version == 0 and partition.committed_offset == NO_OFFSET and code == ErrorCode.NONE:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OldPartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata if version > 0 else "",
        error_code=code,
    )


def _fetch_offsets_of_group(
    context: RequestContext, request: OffsetFetchRequest, requested: RequestedGroup
) -> Steps[Group]:
    groups = context.cluster.groups
    try:
        context.authorize(DESCRIBE_GROUP, requested.group_id)
        if context.version >= FIRST_WITH_COORDINATORS:
            groups.check_is_coordinator(context.node, requested.group_id)
        elif groups.log.topic is not None:
            groups.check_is_coordinator(
                groups.find_coordinator_node(requested.group_id) or context.node, requested.group_id
            )
        group = groups.groups.get(requested.group_id)
        if group is not None:
            group.check_offset_fetch(requested.member_id, requested.member_epoch)
    except KafkaError as error:
        return Group(group_id=requested.group_id, error_code=error.code)
    offsets = CommittedOffsets() if group is None else group.offsets
    fetch = OffsetsFetch(context, offsets, request.require_stable)
    if requested.topics is None:
        topics = yield from fetch.fetch_offsets_of_all_topics()
    else:
        found = yield from run_steps_of_each_item(fetch.fetch_offsets_of_requested_topic, requested.topics)
        topics = [*(topic for topic in found if topic is not None), *fetch.refused]
    now = groups.groups.get(requested.group_id)
    if group is not None and (now is None or now.offsets is not offsets):  # deleted or reloaded in the meantime
        return Group(group_id=requested.group_id, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return Group(group_id=requested.group_id, topics=topics)


class OffsetsFetch:
    """Reads the offsets of one group for an answer. The topics that were `refused` come last there, as in Kafka."""

    def __init__(self, context: RequestContext, offsets: CommittedOffsets, require_stable: bool) -> None:
        self._context = context
        self._offsets = offsets
        self._stable = require_stable
        self._by_id = context.version >= FIRST_WITH_TOPIC_IDS
        self.refused: list[FetchedTopic] = []

    def fetch_offsets_of_all_topics(self) -> Steps[list[FetchedTopic]]:
        """Return all topics with offsets. In versions with topic ids, return only topics that still exist."""
        indexes: dict[str, list[int]] = {}
        for portion in split_into_portions(list(self._offsets.by_partition), COUNTED_AT_ONCE):
            for name, index in portion:
                indexes.setdefault(name, []).append(index)
            yield
        answers = []
        for name, found in indexes.items():
            if not self._context.allows(DESCRIBE_TOPIC, name):
                yield
                continue
            topic = self._context.find_topic(name)
            if topic is not None:
                answers.append((yield from self._fetch_offsets_of_topic(name, topic.topic_id, ZERO_UUID, found)))
            elif not self._by_id:
                answers.append((yield from self._fetch_offsets_of_topic(name, ZERO_UUID, ZERO_UUID, found)))
        return answers

    def fetch_offsets_of_requested_topic(self, topic: RequestedTopic) -> Steps[FetchedTopic | None]:
        """Return the partitions that were asked for, None if the topic is refused."""
        key, expected_id = (topic.topic_id, topic.topic_id) if self._by_id else (topic.name, ZERO_UUID)
        try:
            self._context.authorize_topic(DESCRIBE_TOPIC, key)
            name = self._context.get_topic(key).name if self._by_id else topic.name
        except KafkaError as error:
            refused = yield from apply_to_items_in_steps(
                partial(_make_answer_without_offset, code=error.code), topic.partition_indexes
            )
            self.refused.append(FetchedTopic(name=topic.name, topic_id=expected_id, partitions=refused))
            return None
        return (yield from self._fetch_offsets_of_topic(name, expected_id, expected_id, topic.partition_indexes))

    def _fetch_offsets_of_topic(
        self, name: str, topic_id: bytes, expected_id: bytes, indexes: Iterable[int]
    ) -> Steps[FetchedTopic]:
        """Return the committed offsets of a topic, without those of a topic that had another id than `expected_id`."""
        partitions = yield from apply_to_items_in_steps(
            lambda index: self._fetch_offset_of_partition(name, index, expected_id), indexes
        )
        return FetchedTopic(name=name, topic_id=topic_id, partitions=partitions)

    def _fetch_offset_of_partition(self, name: str, index: int, expected_id: bytes) -> FetchedPartition:
        """Return the committed offset, or none if it is of a topic that had another id than `expected_id`."""
        if self._stable and self._offsets.is_offset_unstable(name, index):
            return _make_answer_without_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._offsets.find_offset(name, index, expected_id)
        if committed is None:
            return _make_answer_without_offset(index, ErrorCode.NONE)
        return FetchedPartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _make_answer_without_offset(index: int, code: int) -> FetchedPartition:
    return FetchedPartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)
