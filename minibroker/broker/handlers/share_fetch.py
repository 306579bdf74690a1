"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and say what became of them (KIP-932).

Behaviour: a request first acknowledges what it names, then acquires the next records of the session's partitions. The
share coordinator keeps what is acknowledged before the answer is sent. Without records a ShareFetch waits for an
append, or for records that others release, until its time is up. Errors concern one partition, except those of the
session.

Versions: 0 was a preview, 1 brought the number of records to acquire and the time of the lock, 2 the strict limit of
records (KIP-1206) and the renewal of locks (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.handlers.fetch_reading import PORTION, count_extra_length_bytes, measure_answer_bytes
from minibroker.broker.handlers.watching import PartitionWatch
from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.leaders import list_leader_endpoints, make_current_leader_answer
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.quotas.quota_manager import FETCHED
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import READ_GROUP, READ_TOPIC
from minibroker.broker.share.deliveries import NOT_ACQUIRED
from minibroker.broker.share.runs import AcknowledgeType, RangeAcknowledgement
from minibroker.broker.share.share_partition import DeliveredBatches, SharePartition, translate_coordinator_error
from minibroker.broker.share.share_partitions import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    SessionKey,
    SharedPartition,
    ShareSession,
    check_member_id,
)
from minibroker.broker.share.states import ShareKey
from minibroker.broker.turn import AppendWait
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from minibroker.protocol.steps import Steps, split_into_portions
from minibroker.storage.segment import Region

FetchTopicAnswer = ShareFetchResponse.ShareFetchableTopicResponse
FetchAnswer = FetchTopicAnswer.PartitionData
AcknowledgeTopicAnswer = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
AcknowledgeAnswer = AcknowledgeTopicAnswer.PartitionData
RequestedTopic = ShareFetchRequest.FetchTopic | ShareAcknowledgeRequest.AcknowledgeTopic
Batch = (
    ShareFetchRequest.FetchTopic.FetchPartition.AcknowledgementBatch
    | ShareAcknowledgeRequest.AcknowledgeTopic.AcknowledgePartition.AcknowledgementBatch
)

FIRST_WITH_RECORD_LIMIT = 1
RECORD_LIMIT_MODE = 1
ACQUIRE_MODES = (0, RECORD_LIMIT_MODE)
MANY_RECORDS: Final = (1 << 31) - 1
FEW: Final = 100  # partitions that are looked at in one step
TYPES: Final = frozenset(AcknowledgeType)
LEADER_IS_ANOTHER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def _check_group_and_member_id(context: RequestContext, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    """Return the ids of group and member; the group's may be empty.

    Raises KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST, GROUP_AUTHORIZATION_FAILED.
    """
    if not context.cluster.image.features.get(SHARE_VERSION, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    context.authorize(READ_GROUP, group_id)
    return group_id, check_member_id(member_id)


# --- ShareFetch -----------------------------------------------------------------------------------------------------


@handles(ApiKey.SHARE_FETCH)
async def share_fetch(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    group_id, member_id = _check_group_and_member_id(context, request.group_id, request.member_id)
    _check_renewal_fetches_nothing(request)
    acknowledgements = list(_iterate_acknowledgements(request.topics))
    key = SessionKey(context.node.node_id, group_id, member_id)
    session = await run_in_slices(_update_share_session(context, key, request, acknowledges=bool(acknowledgements)))
    if request.share_acquire_mode not in ACQUIRE_MODES:
        message = f"Unknown share acquire mode id: {request.share_acquire_mode}"
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)  # as Kafka answers
    fetching = ShareFetching(context, request, group_id, member_id, session)
    for wanted, batches in acknowledgements:
        answer = fetching.get_partition_answer(wanted)
        try:
            acknowledging = _acknowledge_records(context, key, wanted, batches, may_renew=request.is_renew_ack)
            wait = await run_in_slices(acknowledging)
            context.delay_answer_until_wait_is_over(wait, partial(_set_acknowledge_error, answer))
        except KafkaError as error:
            _set_acknowledge_error(answer, error)
        await pause()
    if request.share_session_epoch == FINAL_EPOCH:
        await run_in_slices(context.cluster.shares.end_share_session(key))
        return await run_in_slices(fetching.make_response())
    if not request.is_renew_ack:
        made = await run_in_slices(fetching.open_share_partitions())
        if not (await run_in_slices(fetching.acquire_initial_records(made, is_last_attempt=request.max_wait_ms <= 0))):
            await _acquire_when_records_arrive(fetching)
    return await run_in_slices(fetching.make_response())


async def _acquire_when_records_arrive(fetching: ShareFetching) -> None:
    """Acquire records whenever some arrive or are released, until there are enough or the time is over."""
    with PartitionWatch(fetching.context, fetching.request.max_wait_ms) as watch:
        await run_in_slices(fetching.add_watch_to_partitions(watch))
        is_enough = False
        while not is_enough:
            await watch.make_promise_of_change()
            is_enough = await run_in_slices(fetching.acquire_records_of_changed_partitions(watch))


def _set_acknowledge_error(answer: FetchAnswer, error: KafkaError) -> None:
    answer.acknowledge_error_code, answer.acknowledge_error_message = error.code, error.message


def _check_renewal_fetches_nothing(request: ShareFetchRequest) -> None:
    """Check that a request that renews locks asks for no records. Raises KafkaError(INVALID_REQUEST)."""
    if request.is_renew_ack and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
        message = "Renewal of acquisition locks cannot be combined with a fetch of records."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def _update_share_session(
    context: RequestContext, key: SessionKey, request: ShareFetchRequest, *, acknowledges: bool
) -> Steps[ShareSession]:
    """Return the session, begun if new, with partitions added and removed as the request asks. Raises KafkaError."""
    shares = context.cluster.shares
    shares.check_room_for_session_partitions(sum(len(topic.partitions) for topic in request.topics))
    if request.share_session_epoch == FIRST_EPOCH:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A first request of a session has no acknowledgements.")
        session = shares.begin_share_session(key, context.connection)
    else:
        session = shares.get_share_session(key, request.share_session_epoch)
    for topic in request.topics:
        known_topic = context.find_topic(topic.topic_id)
        name = None if known_topic is None else known_topic.name
        for portion in split_into_portions(topic.partitions):
            for asked in portion:
                session.wanted.setdefault((topic.topic_id, asked.partition_index), name)
            yield
    for forgotten in request.forgotten_topics_data:
        for indexes in split_into_portions(forgotten.partitions):
            for index in indexes:
                session.wanted.pop((forgotten.topic_id, index), None)
            yield
    return session


class ShareFetching:
    """One ShareFetch: the partitions of its session, and its answers so far.

    If they are many, it works in steps. Nothing happens between reading records of a partition and acquiring them.
    """

    def __init__(
        self, context: RequestContext, request: ShareFetchRequest, group_id: str, member_id: str, session: ShareSession
    ) -> None:
        self.context = context
        self.request = request
        self.group_id = group_id
        self.member_id = member_id
        self.session = session
        self.shares: dict[SharedPartition, SharePartition] = {}
        self._answers: dict[SharedPartition, FetchAnswer] = {}
        self._delivered: dict[SharedPartition, DeliveredBatches] = {}
        self._has_error = False
        self._max_bytes: int = min(request.max_bytes, context.cluster.settings["fetch.max.bytes"])
        if context.usage is not None:
            self._max_bytes = min(self._max_bytes, context.cluster.quotas.get_max_fetch_bytes(context, FETCHED))

    @property
    def has_many_partitions(self) -> bool:
        """Return whether the partitions are too many for one step."""
        return len(self.shares) > FEW

    def get_partition_answer(self, shared_partition: SharedPartition) -> FetchAnswer:
        """Return the answer for a partition, an empty one at first."""
        if shared_partition not in self._answers:
            self._answers[shared_partition] = FetchAnswer(
                partition_index=shared_partition[1], records=b"", current_leader=FetchAnswer.LeaderIdAndEpoch()
            )
        return self._answers[shared_partition]

    def _set_partition_error(self, shared_partition: SharedPartition, error: KafkaError) -> None:
        answer = self.get_partition_answer(shared_partition)
        answer.error_code, answer.error_message = error.code, error.message
        self._has_error = True
        partition = self.context.find_partition(*shared_partition) if error.code in LEADER_IS_ANOTHER else None
        if partition is not None:
            answer.current_leader = make_current_leader_answer(partition, FetchAnswer.LeaderIdAndEpoch)

    def open_share_partitions(self) -> Steps[dict[SharedPartition, None]]:
        """Open the share partitions of the session; return those that were not open before."""
        made: dict[SharedPartition, None] = {}
        shares = self.context.cluster.shares
        for wanted in list(self.session.wanted):
            try:
                partition = self._get_led_partition(wanted)
                known = shares.find_share_partition(ShareKey(self.group_id, *wanted))
                self.shares[wanted] = share = yield from shares.find_or_open_share_partition(self.group_id, partition)
                if share is not known:
                    made[wanted] = None
            except KafkaError as error:
                self._set_partition_error(wanted, translate_coordinator_error(error))
            yield
        return made

    def _get_led_partition(self, shared_partition: SharedPartition) -> Partition:
        """Return a partition that this node leads. Raises KafkaError: INCONSISTENT_TOPIC_ID for a recreated topic."""
        try:
            return _find_led_partition(self.context, shared_partition)
        except KafkaError as error:
            name = self.session.wanted[shared_partition]
            if error.code != ErrorCode.UNKNOWN_TOPIC_ID or name is None:
                raise
        self.context.authorize(READ_TOPIC, name)
        self.context.get_led_partition(name, shared_partition[1])
        raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)

    def acquire_initial_records(
        self, opened_partitions: dict[SharedPartition, None], *, is_last_attempt: bool
    ) -> Steps[bool]:
        """Acquire records as `acquire_records_if_ready`, but of a newly opened share partition alone, as in Kafka.

        There, the first one whose state was read completes the request.
        """
        if not opened_partitions or self.request.min_bytes > 1:
            return (yield from self.acquire_records_if_ready(is_last_attempt=is_last_attempt))
        stages = [[wanted] for wanted in opened_partitions]
        if len(opened_partitions) < len(self.shares):
            stages.insert(0, [wanted for wanted in self.shares if wanted not in opened_partitions])
        for done, stage in enumerate(stages, 1):
            if (yield from self.acquire_records_if_ready(stage)):
                for later in stages[done:]:
                    del self.shares[later[0]]
                return True
        return is_last_attempt

    def add_watch_to_partitions(self, watch: PartitionWatch) -> Steps[None]:
        """Register `watch` at all partitions; if that takes several steps, all count as changed afterwards."""
        for share in self.shares.values():
            watch.register_as_waiter(share.waiters)
            watch.register_as_waiter(share.partition.waiters)
            if self.has_many_partitions:
                watch.grown[share.partition] = None
                yield

    def acquire_records_of_changed_partitions(self, watch: PartitionWatch) -> Steps[bool]:
        """Acquire records of what `watch` was notified of, or of all, if the time is over; return whether to answer."""
        grown, watch.grown = watch.grown, {}
        changed: Iterable[SharedPartition] | None = [(each.topic.topic_id, each.index) for each in grown]
        if watch.has_changed or watch.is_late:
            changed, watch.has_changed = None, False
        return (yield from self.acquire_records_if_ready(changed, is_last_attempt=watch.is_late))

    def acquire_records_if_ready(
        self, changed_partitions: Iterable[SharedPartition] | None = None, *, is_last_attempt: bool = False
    ) -> Steps[bool]:
        """Acquire records if there are enough of them, or as a last attempt; return whether to answer.

        With `changed_partitions`, only these partitions have changed since the last attempt.
        """
        min_bytes = min(self.request.min_bytes, self._max_bytes)
        if min_bytes > 1 and not is_last_attempt and not (yield from self._has_min_bytes_to_read(min_bytes)):
            return self._has_error
        looked_at = list(self.shares) if changed_partitions is None or min_bytes > 1 else list(changed_partitions)
        left = self.request.max_records if self.context.version >= FIRST_WITH_RECORD_LIMIT else MANY_RECORDS
        left_bytes = self._max_bytes
        for wanted in looked_at:
            if left <= 0 or left_bytes <= 0:
                break
            delivered = yield from self._acquire_records(wanted, left, left_bytes)
            if delivered is not None:
                left -= sum(each.last - each.first + 1 for each in delivered.acquired)
                left_bytes -= delivered.region.size_bytes
            if self.has_many_partitions:
                yield
        self.session.move_partitions_to_end(self._delivered)
        return is_last_attempt or bool(self._delivered) or self._has_error

    def _has_min_bytes_to_read(self, min_bytes: int) -> Steps[bool]:
        """Return whether at least `min_bytes` of records can be read, or a partition has an error."""
        for wanted in list(self.shares):
            region = self._read_region(wanted, self._max_bytes)
            min_bytes -= 0 if region is None else region.size_bytes
            if min_bytes <= 0 or self._has_error:
                return True
            if self.has_many_partitions:
                yield
        return False

    def _read_region(self, shared_partition: SharedPartition, max_bytes: int) -> Region | None:
        """Return the next records of a partition, or None. An error is put into its answer."""
        share = self.shares[shared_partition]
        try:
            if self.context.cluster.shares.find_share_partition(share.key) is not share:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return share.read_region_to_acquire(max_bytes)
        except KafkaError as error:
            self._set_partition_error(shared_partition, translate_coordinator_error(error))
            return None

    def _acquire_records(
        self, shared_partition: SharedPartition, records_left: int, remaining_bytes: int
    ) -> Steps[DeliveredBatches | None]:
        """Acquire records of a partition, if need be behind aborted ones; return None if there are none."""
        strict = self.request.share_acquire_mode == RECORD_LIMIT_MODE
        batch_size = self.request.batch_size if self.context.version >= FIRST_WITH_RECORD_LIMIT else MANY_RECORDS
        share = self.shares[shared_partition]
        while (region := self._read_region(shared_partition, remaining_bytes)) is not None:
            before = share.deliveries.find_next_offset()
            try:
                delivered = share.acquire_records(self.member_id, region, records_left, batch_size, strict=strict)
            except KafkaError as error:
                self._set_partition_error(shared_partition, translate_coordinator_error(error))
                return None
            if delivered is not None:
                self._delivered[shared_partition] = delivered
                self._put_records_into_answer(shared_partition, delivered)
            if delivered is not None or share.deliveries.find_next_offset() <= before:
                return delivered
            yield
        return None

    def _put_records_into_answer(self, shared_partition: SharedPartition, delivered_batches: DeliveredBatches) -> None:
        answer = self.get_partition_answer(shared_partition)
        answer.records = delivered_batches.region
        answer.acquired_records = [
            FetchAnswer.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in delivered_batches.acquired
        ]

    def make_response(self) -> Steps[ShareFetchResponse]:
        """Return the answer. A session's first one names all partitions that have room for more, as in Kafka."""
        if self.request.share_session_epoch == FIRST_EPOCH:
            for wanted, share in list(self.shares.items()):
                if share.has_room_for_records:
                    self.get_partition_answer(wanted)
                yield
        topics: dict[bytes, FetchTopicAnswer] = {}
        for portion in split_into_portions(list(self._answers.items())):
            for (topic_id, _), answer in portion:
                topics.setdefault(topic_id, FetchTopicAnswer(topic_id=topic_id)).partitions.append(answer)
            yield
        yield from self._charge_fetch_quota(topics.values())
        leaders = [answer.current_leader for answer in self._answers.values() if answer.error_code in LEADER_IS_ANOTHER]
        context = self.context
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=_get_lock_duration_ms(context, self.group_id),
            responses=list(topics.values()),
            node_endpoints=list_leader_endpoints(
                context.cluster.nodes, context.connection.listener, leaders, ShareFetchResponse.NodeEndpoint
            ),
        )

    def _charge_fetch_quota(self, topics: Collection[FetchTopicAnswer]) -> Steps[None]:
        """Charge the answer to the client's quota; if that is used up, nothing is sent and nothing acquired."""
        usage = self.context.usage
        if usage is None:
            return
        size_bytes = yield from _measure_response_in_steps(topics, self.context.version)
        if self.context.cluster.quotas.charge_fetched_bytes(self.context, usage, size_bytes):
            return
        for wanted, delivered in self._delivered.items():
            self.shares[wanted].undo_acquisition(self.member_id, delivered)
            self._answers[wanted].records, self._answers[wanted].acquired_records = b"", []
            yield


def _measure_response_in_steps(topics: Collection[FetchTopicAnswer], version: int) -> Steps[int]:
    """Return the size of the answer with these topics, as Kafka charges it."""
    none_bytes = measure_answer_bytes(ShareFetchResponse(), version)
    bare_bytes = measure_answer_bytes(ShareFetchResponse(responses=[FetchTopicAnswer()]), version)
    size_bytes = none_bytes + count_extra_length_bytes(len(topics), version, ShareFetchResponse)
    for topic in topics:
        size_bytes += bare_bytes - none_bytes
        size_bytes += count_extra_length_bytes(len(topic.partitions), version, ShareFetchResponse)
        for portion in split_into_portions(topic.partitions, PORTION):
            some = ShareFetchResponse(responses=[FetchTopicAnswer(partitions=list(portion))])
            size_bytes += measure_answer_bytes(some, version) - bare_bytes
            yield
    return size_bytes


def _get_lock_duration_ms(context: RequestContext, group_id: str) -> int:
    return int(get_group_config(context.cluster, group_id, "share.record.lock.duration.ms"))


def _find_led_partition(context: RequestContext, shared_partition: SharedPartition) -> Partition:
    """Return a partition that this node leads, and whose records the client may read. Raises KafkaError."""
    context.authorize_topic(READ_TOPIC, shared_partition[0])
    return context.get_led_partition(*shared_partition)


# --- ShareAcknowledge -----------------------------------------------------------------------------------------------


@handles(ApiKey.SHARE_ACKNOWLEDGE)
async def share_acknowledge(context: RequestContext, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    group_id, member_id = _check_group_and_member_id(context, request.group_id, request.member_id)
    key = SessionKey(context.node.node_id, group_id, member_id)
    if request.share_session_epoch == FIRST_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    context.cluster.shares.get_share_session(key, request.share_session_epoch)
    topics: dict[bytes, AcknowledgeTopicAnswer] = {}
    for wanted, batches in _iterate_acknowledgements(request.topics):
        answer = AcknowledgeAnswer(partition_index=wanted[1], current_leader=AcknowledgeAnswer.LeaderIdAndEpoch())
        try:
            acknowledging = _acknowledge_records(context, key, wanted, batches, may_renew=request.is_renew_ack)
            wait = await run_in_slices(acknowledging)
            context.delay_answer_until_wait_is_over(wait, partial(_set_partition_error, context, wanted, answer))
        except KafkaError as error:
            _set_partition_error(context, wanted, answer, error)
        topics.setdefault(wanted[0], AcknowledgeTopicAnswer(topic_id=wanted[0])).partitions.append(answer)
        await pause()
    if request.share_session_epoch == FINAL_EPOCH:
        await run_in_slices(context.cluster.shares.end_share_session(key))
    leaders = [
        each.current_leader
        for topic in topics.values()
        for each in topic.partitions
        if each.error_code in LEADER_IS_ANOTHER
    ]
    nodes, listener = context.cluster.nodes, context.connection.listener
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=_get_lock_duration_ms(context, group_id),
        responses=list(topics.values()),
        node_endpoints=list_leader_endpoints(nodes, listener, leaders, ShareAcknowledgeResponse.NodeEndpoint),
    )


def _set_partition_error(
    context: RequestContext, shared_partition: SharedPartition, answer: AcknowledgeAnswer, error: KafkaError
) -> None:
    answer.error_code, answer.error_message = error.code, error.message
    partition = context.find_partition(*shared_partition) if error.code in LEADER_IS_ANOTHER else None
    if partition is not None:
        answer.current_leader = make_current_leader_answer(partition, AcknowledgeAnswer.LeaderIdAndEpoch)


# --- acknowledgements -----------------------------------------------------------------------------------------------


def _iterate_acknowledgements(topics: Iterable[RequestedTopic]) -> Iterator[tuple[SharedPartition, Sequence[Batch]]]:
    """Yield the partitions that have acknowledgements in the request, with these."""
    for topic in topics:
        for asked in topic.partitions:
            if asked.acknowledgement_batches:
                yield (topic.topic_id, asked.partition_index), asked.acknowledgement_batches


def _acknowledge_records(
    context: RequestContext, key: SessionKey, shared: SharedPartition, batches: Sequence[Batch], *, may_renew: bool
) -> Steps[AppendWait]:
    """Acknowledge records of a partition; return the wait until that is durable. Raises KafkaError."""
    acknowledgements: list[RangeAcknowledgement] = []
    for portion in split_into_portions(batches):
        for batch in portion:
            acknowledgements.append(_parse_acknowledgement(batch, may_renew=may_renew))
            if len(acknowledgements) > 1 and acknowledgements[-1].first < acknowledgements[-2].last:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Acknowledgement batches overlap, or are not in order.")
            if len(acknowledgements) > 1 and acknowledgements[-1].first == acknowledgements[-2].last:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, NOT_ACQUIRED)
        yield
    partition = _find_led_partition(context, shared)
    try:
        share = yield from context.cluster.shares.find_or_open_share_partition(key.group_id, partition)
        return share.acknowledge_records(key.member_id, acknowledgements)
    except KafkaError as error:
        raise translate_coordinator_error(error) from None


def _parse_acknowledgement(batch: Batch, *, may_renew: bool) -> RangeAcknowledgement:
    """Return the acknowledgement of a request. Raises KafkaError(INVALID_REQUEST)."""
    types, count = batch.acknowledge_types, batch.last_offset - batch.first_offset + 1
    if count <= 0 or not types or len(types) not in (1, count):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "An acknowledgement has one type, or one for each offset.")
    if not set(types) <= (TYPES if may_renew else TYPES - {AcknowledgeType.RENEW}):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid acknowledge type.")
    return RangeAcknowledgement(batch.first_offset, batch.last_offset, types)
