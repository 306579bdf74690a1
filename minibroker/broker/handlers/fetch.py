"""Fetch: whole batches out of partitions, by file region; a request for more than there is waits for it.

Behaviour: the batch that contains the asked offset comes first, and the first partition with records gets one batch at
least, whatever the limits. Below min_bytes the request is parked until an append, or max_wait. Sessions as in KIP-227:
see `sessions`. An error concerns its partition only, but for errors of the session. The id of a deleted topic is
unknown at once, also in a session that knew it.

Versions: clients of 0 and 1 know message format 0, of 2 and 3 format 1: what is stored in a newer one is converted for
them, without control batches. 1 brought the throttle time, 3 max_bytes (before, each partition with records gets one
batch at least, as its clients ask for partitions in the same order for ever), 4 format 2 and isolation levels, 5 the
log start offset, 7 sessions, 9 leader epochs (KIP-320), 10 zstd (a topic that compresses with it is refused before), 12
diverging epochs and the current leader, 13 topic ids, 16 where leaders are, 17 and 18 fields for followers.

Records without attributes (`record.attributes.elide`, KIP-931) get them back for all clients but those that say, in
the tagged field 10000 of version 12 and newer, that they understand them.

A follower serves consumers of version 11 and newer; a leader tells them of one in their own rack, if
`replica.selector.class` wants it (KIP-392).

Not implemented: fetching as a follower (a replica id is taken for a consumer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from minibroker.broker.handlers.waiting_fetches import WaitingFetch, WaitingInSteps
from minibroker.broker.metadata.followers import preferred_replica, serves_as_follower
from minibroker.broker.metadata.leaders import current_leader, leader_endpoints
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.quotas.quota_manager import FETCHED
from minibroker.broker.requests.answers import MAX_ANSWER_BYTES
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.down_conversion import (
    MAX_CONVERTED_BYTES,
    Conversion,
    Converted,
    Wanted,
    read_for_client_in_steps,
)
from minibroker.broker.requests.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
)
from minibroker.broker.requests.parked import Parked
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import READ_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.primitives import Output
from minibroker.protocol.steps import Steps, at_once, chunks
from minibroker.storage.log import Log
from minibroker.storage.segment import Region

if TYPE_CHECKING:
    from minibroker.broker.quotas.quota_manager import Usage

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData

FIRST_WITH_FORMAT_1 = 2
FIRST_WITH_MAX_BYTES = 3
FIRST_WITH_FORMAT_2 = 4
FIRST_WITH_ZSTD = 10
FIRST_WITH_TOPIC_IDS = 13
FIRST_WITH_LEADERS = 16
READ_COMMITTED = 1
FEW = 100  # partitions, that are looked at in one step
UNKNOWN = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
LEADER_IS_ANOTHER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Topics = dict[str | bytes, TopicAnswer]
Answered = tuple[FetchedPartition, PartitionAnswer, int]  # the last is how many bytes of records it carries


@handles(ApiKey.FETCH)
def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse | Parked | Steps[FetchResponse | Parked]:
    if context.version < FIRST_WITH_FORMAT_2 or _asks_much(context, request):
        return _fetch_in_steps(context, request)
    session = None
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
        wanted = _named(context, request.topics)
    else:
        session, wanted = at_once(_wanted(context, request))
    reading = Reading(context, request, session, wanted)
    try:
        reading.read()
    except Conversion:
        return _read_in_steps(reading)
    if reading.enough() or request.max_wait_ms <= 0:
        return reading.response()
    return WaitingFetch(reading).parked


def _asks_much(context: RequestContext, request: FetchRequest) -> bool:
    """Whether it is about so many partitions that others should not wait for all of them."""
    named = len(request.topics) + len(request.forgotten_topics_data)
    for topic in request.topics:
        named += len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        named += len(forgotten.partitions)
    return named > FEW or (
        request.session_id != NO_SESSION and context.node.sessions.partition_count(request.session_id) > FEW
    )


def _fetch_in_steps(context: RequestContext, request: FetchRequest) -> Steps[FetchResponse | Parked]:
    session, wanted = yield from _wanted(context, request)
    return (yield from _read_in_steps(Reading(context, request, session, wanted)))


def _read_in_steps(reading: Reading) -> Steps[FetchResponse | Parked]:
    yield from reading.read_in_steps()
    if reading.enough() or reading.request.max_wait_ms <= 0 or not WaitingInSteps.has_room(reading):
        return (yield from reading.response_in_steps())
    waiting = WaitingInSteps(reading)
    yield from waiting.begin()
    return waiting.parked


# --- what is asked ------------------------------------------------------------------------------


def _wanted(
    context: RequestContext, request: FetchRequest
) -> Steps[tuple[FetchSession | None, list[FetchedPartition]]]:
    """The session that is used or is made, if any, and the partitions to read. Raises KafkaError."""
    sessions = context.node.sessions
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    now_ms = context.cluster.clock.monotonic_ms()
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.remove(request.session_id)
        wanted = yield from _named_in_steps(context, request)
        if request.session_epoch == FINAL_EPOCH:
            return None, wanted
        return (yield from _begun(context, wanted)), wanted
    session = sessions.resume(request.session_id, request.session_epoch, uses_topic_ids, now_ms)
    session.next_epoch()  # first of all: no second request of this epoch is to change the session, too
    yield from _update(context, session, request)
    sessions.settle(session, now_ms)
    if not session.partitions:
        sessions.remove(session.session_id)
        return None, []
    return session, list(session.partitions.values())


def _begun(context: RequestContext, wanted: list[FetchedPartition]) -> Steps[FetchSession | None]:
    """A session that holds these partitions, or None if there is no room for it."""
    sessions = context.node.sessions
    now_ms = context.cluster.clock.monotonic_ms()
    session = sessions.create(len(wanted), context.version >= FIRST_WITH_TOPIC_IDS, now_ms)
    if session is None:
        return None
    for portion in chunks(wanted):
        session.add(portion)
        if len(wanted) > FEW:
            yield
    return session if sessions.settle(session, now_ms) else None


def _named(context: RequestContext, topics: Iterable[FetchRequest.FetchTopic]) -> list[FetchedPartition]:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    return [
        _asked(FetchedPartition(topic.topic_id if by_id else topic.topic, asked.partition), asked)
        for topic in topics
        for asked in topic.partitions
    ]


def _named_in_steps(context: RequestContext, request: FetchRequest) -> Steps[list[FetchedPartition]]:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    named: list[FetchedPartition] = []
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for portion in chunks(topic.partitions):
            named += [_asked(FetchedPartition(key, asked.partition), asked) for asked in portion]
            if len(named) > FEW:
                yield
        if len(request.topics) > FEW:
            yield
    return named


def _asked(partition: FetchedPartition, asked: FetchRequest.FetchTopic.FetchPartition) -> FetchedPartition:
    partition.fetch_offset = asked.fetch_offset
    partition.max_bytes = asked.partition_max_bytes
    partition.current_leader_epoch = asked.current_leader_epoch
    partition.last_fetched_epoch = asked.last_fetched_epoch
    return partition


def _update(context: RequestContext, session: FetchSession, request: FetchRequest) -> Steps[None]:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for asked in topic.partitions:
            known = session.partitions.get((key, asked.partition))
            if known is None:
                known = FetchedPartition(key, asked.partition)
                session.add([known])
            _asked(known, asked)
            if len(session.partitions) > FEW:
                yield
    for forgotten in request.forgotten_topics_data:
        key = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            session.forget(key, index)
            if len(forgotten.partitions) > FEW:
                yield


# --- reading ------------------------------------------------------------------------------------


class Reading:
    """One pass over the partitions of a fetch: `answers` holds each with its answer, `size_bytes` what they carry.

    `unknown` counts the partitions that are not there at all; `urgent` says that the client must hear at once. As in
    Kafka, `min_bytes` is no more than the answer may hold: nobody waits for what cannot come.
    """

    __slots__ = (
        "answers",
        "context",
        "max_bytes",
        "min_bytes",
        "request",
        "session",
        "size_bytes",
        "unknown",
        "urgent",
        "wanted",
    )

    def __init__(
        self,
        context: RequestContext,
        request: FetchRequest,
        session: FetchSession | None,
        wanted: list[FetchedPartition],
    ) -> None:
        self.context = context
        self.request = request
        self.session = session
        self.wanted = wanted
        self.max_bytes: int = min(request.max_bytes, context.cluster.settings["fetch.max.bytes"])
        if context.usage is not None:
            most_bytes = context.cluster.quotas.most_bytes(context, FETCHED)
            self.max_bytes = self.max_bytes if most_bytes is None else min(self.max_bytes, most_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)

    def _begin(self) -> None:
        self.size_bytes = 0
        self.unknown = 0
        self.urgent = False
        self.answers: list[Answered] = []

    def read(self) -> None:
        """Look at all partitions, now. Raises Conversion where that is work for more than a step."""
        self._begin()
        for fetched in self.wanted:
            answer, size_bytes = self._partition(fetched, self._left())
            self.size_bytes += size_bytes
            self.answers.append((fetched, answer, size_bytes))

    def read_in_steps(self) -> Steps[None]:
        """Look at all partitions, a portion at a time."""
        self._begin()
        for portion in chunks(self.wanted):
            for fetched in portion:
                answer, size_bytes = yield from self._partition_in_steps(fetched)
                self.size_bytes += size_bytes
                self.answers.append((fetched, answer, size_bytes))
            yield

    def _left(self) -> int:
        """How many bytes more the answer may hold: less than none only where the client says so, and then no batch."""
        return max(self.max_bytes - self.size_bytes, min(self.max_bytes, 0))

    def read_again(self, number: int) -> Steps[None]:
        """Look at one partition anew: the one whose answer has this number."""
        fetched, answer, size_bytes = self.answers[number]
        self.size_bytes -= size_bytes
        answer, size_bytes = yield from self._partition_in_steps(fetched)
        self.size_bytes += size_bytes
        self.answers[number] = fetched, answer, size_bytes

    def _partition_in_steps(self, fetched: FetchedPartition) -> Steps[tuple[PartitionAnswer, int]]:
        """Answer as `_partition` does, also where records are to be converted."""
        while True:
            try:
                return self._partition(fetched, self._left())
            except Conversion as needed:
                conversion = needed.with_traceback(None)  # which would hold this frame
            found: Region | Converted | KafkaError | None
            try:
                found = yield from read_for_client_in_steps(conversion.log, conversion.wanted)
            except KafkaError as error:
                found = error.with_traceback(None)
            if not conversion.is_void():
                return self._converted(fetched, conversion, found)

    def _converted(
        self, fetched: FetchedPartition, conversion: Conversion, found: Region | Converted | KafkaError | None
    ) -> tuple[PartitionAnswer, int]:
        if isinstance(found, KafkaError):
            return self._refused(fetched, found), 0
        if isinstance(found, Converted) and found.next_offset < conversion.wanted.limit_offset:
            self.urgent = True  # there is more, of which no more is converted now
        return self._filled(fetched, conversion.answer, conversion.log, conversion.wanted.limit_offset, found)

    def _partition(self, fetched: FetchedPartition, left: int) -> tuple[PartitionAnswer, int]:
        context = self.context
        try:
            context.authorize_topic(READ_TOPIC, fetched.topic)
            if self.request.rack_id or len(context.cluster.nodes) > 1:
                return self._chosen(fetched, left)
            return self._led(fetched, context.partition(fetched.topic, fetched.index), left)
        except KafkaError as error:
            return self._refused(fetched, error), 0

    def _chosen(self, fetched: FetchedPartition, left: int) -> tuple[PartitionAnswer, int]:
        """Answer as a follower, or as a leader whose client has a rack."""
        context = self.context
        partition = context.find_partition(fetched.topic, fetched.index)
        if partition is None or not serves_as_follower(context.node, partition, context.version):
            partition = context.partition(fetched.topic, fetched.index)
        other = preferred_replica(context.cluster, context.node, partition, self.request.rack_id)
        if other is None:
            return self._led(fetched, partition, left)
        answer, _ = self._led(fetched, partition, 0)
        answer.preferred_read_replica, answer.records = other, b""
        self.urgent = True
        return answer, 0

    def _refused(self, fetched: FetchedPartition, error: KafkaError) -> PartitionAnswer:
        unknown = error.code in UNKNOWN
        if unknown:
            self.unknown += 1
        else:
            self.urgent = True
        answer = PartitionAnswer(
            partition_index=fetched.index,
            error_code=error.code,
            high_watermark=-1,
            aborted_transactions=[] if unknown else None,
            records=b"",
        )
        partition = None
        if error.code in LEADER_IS_ANOTHER:
            partition = self.context.find_partition(fetched.topic, fetched.index)
        if partition is not None:
            answer.current_leader = current_leader(partition, PartitionAnswer.LeaderIdAndEpoch)
        return answer

    def _led(self, fetched: FetchedPartition, partition: Partition, left: int) -> tuple[PartitionAnswer, int]:
        partition.check_epoch(fetched.current_leader_epoch)
        log = partition.log
        committed = self.request.isolation_level == READ_COMMITTED
        answer = PartitionAnswer(
            partition_index=fetched.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=b"",
        )
        if fetched.last_fetched_epoch >= 0 and self._diverges(fetched, partition, answer):
            return answer, 0
        limit = log.last_stable_offset if committed else log.high_watermark
        version = self.context.version
        if version < FIRST_WITH_ZSTD and log.settings.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        elided = log.settings.record_attributes_elide is not None and not self.request.records_without_attributes
        if elided or version < FIRST_WITH_FORMAT_2:
            raise Conversion(answer, log, self._wanted_of(fetched, limit, left))
        region = log.read(
            fetched.fetch_offset, min(fetched.max_bytes, left), limit_offset=limit, minimum_one=self.size_bytes == 0
        )
        return self._filled(fetched, answer, log, limit, region)

    def _filled(
        self,
        fetched: FetchedPartition,
        answer: PartitionAnswer,
        log: Log,
        limit: int,
        region: Region | Converted | None,
    ) -> tuple[PartitionAnswer, int]:
        """Return the answer with what was read for it, and how many bytes that is."""
        if region is None:
            return answer, 0
        if region.next_offset < limit and fetched.fetch_offset < log.segments[-1].base_offset:
            self.urgent = True  # a read ends with its segment, but what follows is there already: do not wait for it
        if answer.aborted_transactions is not None:
            answer.aborted_transactions = [
                PartitionAnswer.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.aborted_transactions(fetched.fetch_offset, region.next_offset)
            ]
        answer.records = region.data if isinstance(region, Converted) else region
        return answer, region.size_bytes

    def _wanted_of(self, fetched: FetchedPartition, limit: int, left: int) -> Wanted:
        """Return what is wanted in a format that the client knows, which may not be the one in which it is stored."""
        version = self.context.version
        return Wanted(
            fetched.fetch_offset,
            min(fetched.max_bytes, left),
            max(MAX_CONVERTED_BYTES - self.size_bytes, 0),
            limit,
            self.size_bytes == 0 or version < FIRST_WITH_MAX_BYTES,
            magic=2 if version >= FIRST_WITH_FORMAT_2 else 1 if version >= FIRST_WITH_FORMAT_1 else 0,
        )

    def _diverges(self, fetched: FetchedPartition, partition: Partition, answer: PartitionAnswer) -> bool:
        """KIP-320: whether what the client read last is not in this log; then the answer says from where on."""
        epoch, end_offset = partition.end_offset_for_epoch(fetched.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {fetched.last_fetched_epoch} is unknown")
        diverges = epoch < fetched.last_fetched_epoch or end_offset < fetched.fetch_offset
        if diverges:
            answer.diverging_epoch = PartitionAnswer.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            self.urgent = True
        return diverges

    # --- answering ------------------------------------------------------------------------------

    def enough(self) -> bool:
        """Whether there is nothing to wait for.

        As in Kafka, an unknown partition does not hurry the known ones: a client that keeps asking for it would spin.
        """
        return self.urgent or self.size_bytes >= self.min_bytes or self.unknown == len(self.answers)

    def response(self) -> FetchResponse:
        """The answer; with an incremental session, only of partitions that have news."""
        topics: Topics = {}
        self._put(topics, self.answers)
        response = self._assembled(topics)
        return response if self.context.usage is None else at_once(self._charged(response, self.context.usage))

    def read_for_response(self) -> Steps[FetchResponse]:
        """Look at all partitions for the last time, and answer."""
        yield from self.read_in_steps()
        return (yield from self.response_in_steps())

    def response_in_steps(self) -> Steps[FetchResponse]:
        """The answer, put together a portion at a time."""
        topics: Topics = {}
        for portion in chunks(self.answers):
            self._put(topics, portion)
            yield
        response = self._assembled(topics)
        if self.context.usage is not None:
            response = yield from self._charged(response, self.context.usage)
        return response

    def _charged(self, response: FetchResponse, usage: Usage) -> Steps[FetchResponse]:
        """Return the answer, or an empty one if the client's quota is used up: it asks again once it may."""
        quotas, out = self.context.cluster.quotas, Output()
        yield from response.encode_in_steps(out, self.context.version, MAX_ANSWER_BYTES)
        size_bytes = len(out) + sum(region.size_bytes for _, region in out.regions)
        if not quotas.charge_bytes(self.context, usage, FETCHED, size_bytes):
            return response
        quotas.take_back(self.context, FETCHED, size_bytes)
        if self.session is None or self.request.session_epoch <= INITIAL_EPOCH:
            if self.session is not None:
                self.context.node.sessions.remove(self.session.session_id)
            return FetchResponse(session_id=NO_SESSION, responses=[])
        for fetched, _, _ in self.answers:
            fetched.forget_told()
        return FetchResponse(session_id=self.session.session_id, responses=[])

    def _put(self, topics: Topics, answers: Sequence[Answered]) -> None:
        """Put the answers that the client is to be told with those of their topics."""
        by_id = self.context.version >= FIRST_WITH_TOPIC_IDS
        for fetched, answer, _ in answers if self.session is None else self._news(self.session, answers):
            topic = topics.get(fetched.topic)
            if topic is None:
                key: Any = fetched.topic
                topic = TopicAnswer(topic_id=key) if by_id else TopicAnswer(topic=key)
                topics[key] = topic
            topic.partitions.append(answer)

    def _news(self, session: FetchSession, answers: Sequence[Answered]) -> list[Answered]:
        incremental = self.request.session_epoch > INITIAL_EPOCH
        told = []
        for fetched, answer, size_bytes in answers:
            news = fetched.news(answer.high_watermark, answer.log_start_offset, answer.error_code, size_bytes)
            if news or not incremental or answer.diverging_epoch is not None:
                told.append((fetched, answer, size_bytes))
            if size_bytes:
                session.served(fetched)
        return told

    def _assembled(self, topics: Topics) -> FetchResponse:
        session_id = NO_SESSION if self.session is None else self.session.session_id
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if self.urgent and self.context.version >= FIRST_WITH_LEADERS:
            leaders = (answer.current_leader for topic in topics.values() for answer in topic.partitions)
            response.node_endpoints = leader_endpoints(
                self.context.cluster.nodes, self.context.connection.listener, leaders, FetchResponse.NodeEndpoint
            )
        return response
