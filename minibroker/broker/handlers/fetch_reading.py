"""One pass over the partitions of a Fetch: read them, decide whether that is enough, and build the answer.

`FetchReading` reads a few partitions at once; `long_fetch_reading` works in steps. `fetch` decides what to read, and
waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.configs.settings_table import RACK_AWARE
from minibroker.broker.fetch_sessions import INITIAL_EPOCH, NO_SESSION, FetchedPartition, FetchSession
from minibroker.broker.handlers.down_conversion import (
    MAX_CONVERTED_BYTES,
    ConvertedRecords,
    DownConversionNeeded,
    LogReadRequest,
)
from minibroker.broker.metadata.leaders import (
    find_preferred_read_replica,
    list_leader_endpoints,
    make_current_leader_answer,
    serves_fetch_as_follower,
)
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.quotas.quota_manager import FETCHED
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.security.operations import CLUSTER_ACTION, READ_TOPIC
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.primitives import Output, encode_unsigned_varint
from minibroker.storage.log import Log
from minibroker.storage.segment import Region

if TYPE_CHECKING:
    from minibroker.broker.handlers.watching import PartitionWatch

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData

FIRST_WITH_FORMAT_1: Final = 2
FIRST_WITH_MAX_BYTES: Final = 3
FIRST_WITH_FORMAT_2: Final = 4
FIRST_WITH_TOPIC_IDS: Final = 13
FIRST_WITH_LEADERS: Final = 16
READ_COMMITTED: Final = 1
SIZE_BYTES: Final = 4  # of an answer's frame; Kafka charges it and the message, but not the header
PORTION: Final = 100  # partitions whose answers are measured together; an array of so few has a length of one byte
UNREADABLE: Final = frozenset(  # errors found before a log is read; the request still waits for its other partitions
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
LEADER_IS_ANOTHER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

Answered = tuple[FetchedPartition, PartitionAnswer, int]  # the last is the size of its records in bytes


class FetchReading:
    """One pass over a few partitions: `answers` has the answer of each, `size_bytes` the size of all records.

    `unreadable` counts the partitions that do not exist or may not be read, `leaders` has the current leaders by node
    id, and `urgent` means that the answer must be sent at once. `is_denied` is whether a replica asks that may not
    copy. As in Kafka, `min_bytes` is at most `max_bytes`, as a fetch would else wait for more than its answer can hold.
    """

    __slots__ = (
        "answers",
        "context",
        "is_denied",
        "leaders",
        "max_bytes",
        "min_bytes",
        "request",
        "session",
        "size_bytes",
        "unreadable",
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
        replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
        self.is_denied = replica >= 0 and not context.allows(CLUSTER_ACTION, is_needed=True)
        self.max_bytes: int = min(request.max_bytes, context.cluster.settings["fetch.max.bytes"])
        if context.usage is not None:
            self.max_bytes = min(self.max_bytes, context.cluster.quotas.get_max_fetch_bytes(context, FETCHED))
        self.min_bytes = min(request.min_bytes, self.max_bytes)

    def _reset_answers(self) -> None:
        self.size_bytes = 0
        self.unreadable = 0
        self.urgent = False
        self.leaders: dict[int, Any] = {}
        self.answers: list[Answered] = []

    def read_partitions(self) -> None:
        """Read all partitions now. Raises DownConversionNeeded if records must be converted, in several steps."""
        self._reset_answers()
        for fetched in self.wanted:
            answer, size_bytes = self._read_partition(fetched, self._count_response_bytes_left())
            self.size_bytes += size_bytes
            self.answers.append((fetched, answer, size_bytes))

    def _count_response_bytes_left(self) -> int:
        """Return how many more bytes of records fit. It is negative only if max_bytes is, and then no batch fits."""
        return max(self.max_bytes - self.size_bytes, min(self.max_bytes, 0))

    def _read_partition(
        self, fetched_partition: FetchedPartition, bytes_left: int | None
    ) -> tuple[PartitionAnswer, int]:
        """Return the answer with at most `bytes_left` bytes of records, and their size. With None, read nothing."""
        context = self.context
        try:
            if self.is_denied:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            context.authorize_topic(READ_TOPIC, fetched_partition.topic)
            if self.request.rack_id or len(context.cluster.nodes) > 1:
                return self._read_partition_or_name_preferred_replica(fetched_partition, bytes_left)
            return self._read_led_partition(
                fetched_partition,
                context.get_led_partition(fetched_partition.topic, fetched_partition.index),
                bytes_left,
            )
        except KafkaError as error:
            code = error.code
            if code == ErrorCode.UNKNOWN_TOPIC_ID and fetched_partition.name is not None:
                code = self._find_error_of_deleted_topic(fetched_partition, fetched_partition.name)
            return self._make_error_answer(fetched_partition, code), 0

    def _find_error_of_deleted_topic(self, fetched_partition: FetchedPartition, name: str) -> ErrorCode:
        """Return the error of a topic that was deleted since the session learnt its name."""
        if not self.context.allows(READ_TOPIC, name, is_needed=True):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        other = self.context.find_partition(name, fetched_partition.index)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if other is None else ErrorCode.INCONSISTENT_TOPIC_ID

    def _read_partition_or_name_preferred_replica(
        self, fetched_partition: FetchedPartition, bytes_left: int | None
    ) -> tuple[PartitionAnswer, int]:
        """Return the answer of a follower, or of a leader to a client with a rack; see `_read_partition`."""
        context = self.context
        partition = context.find_partition(fetched_partition.topic, fetched_partition.index)
        if partition is None or not serves_fetch_as_follower(context.node, partition, context.version):
            partition = context.get_led_partition(fetched_partition.topic, fetched_partition.index)
        other = None
        if context.cluster.settings["replica.selector.class"] == RACK_AWARE:
            other = find_preferred_read_replica(context.cluster.nodes, context.node, partition, self.request.rack_id)
        if other is None:
            return self._read_led_partition(fetched_partition, partition, bytes_left)
        answer, _ = self._read_led_partition(fetched_partition, partition, bytes_left and 0)
        answer.preferred_read_replica, answer.records = other, b""
        self.urgent = True
        return answer, 0

    def _make_error_answer(self, fetched_partition: FetchedPartition, code: ErrorCode) -> PartitionAnswer:
        unreadable = code in UNREADABLE
        if unreadable:
            self.unreadable += 1
        else:
            self.urgent = True
        answer = PartitionAnswer(
            partition_index=fetched_partition.index,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=[] if unreadable else None,
            records=b"",
        )
        partition = None
        if code in LEADER_IS_ANOTHER:
            partition = self.context.find_partition(fetched_partition.topic, fetched_partition.index)
        if partition is not None:
            answer.current_leader = leader = make_current_leader_answer(partition, PartitionAnswer.LeaderIdAndEpoch)
            self.leaders[leader.leader_id] = leader
        return answer

    def _read_led_partition(
        self, fetched_partition: FetchedPartition, partition: Partition, bytes_left: int | None
    ) -> tuple[PartitionAnswer, int]:
        """Return the answer of a partition that this node may serve, and the size of its records in bytes."""
        partition.check_leader_epoch(fetched_partition.current_leader_epoch)
        log = partition.log
        committed = self.request.isolation_level == READ_COMMITTED
        answer = PartitionAnswer(
            partition_index=fetched_partition.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=[] if committed else None,
            records=b"",
        )
        if fetched_partition.last_fetched_epoch >= 0 and self._detect_log_divergence(
            fetched_partition, partition, answer
        ):
            return answer, 0
        limit = log.last_stable_offset if committed else log.high_watermark
        version = self.context.version
        refuses = version < FIRST_WITH_FORMAT_2 or self.context.refuses_zstd
        if refuses and log.settings.compression_type == "zstd":
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if bytes_left is None:
            return answer, 0
        elided = log.settings.record_attributes_elide is not None and not self.request.records_without_attributes
        if elided or version < FIRST_WITH_FORMAT_2:
            raise DownConversionNeeded(answer, log, self._plan_log_read(fetched_partition, limit, bytes_left))
        region = log.read(
            fetched_partition.fetch_offset,
            min(fetched_partition.max_bytes, bytes_left),
            limit_offset=limit,
            minimum_one=self.size_bytes == 0,
        )
        return self._set_answer_records(fetched_partition, answer, log, limit, region)

    def _set_answer_records(
        self,
        fetched_partition: FetchedPartition,
        answer: PartitionAnswer,
        log: Log,
        limit_offset: int,
        region: Region | ConvertedRecords | None,
    ) -> tuple[PartitionAnswer, int]:
        """Put the records of `region`, with their aborted transactions, into `answer`; return it, and their size."""
        if region is None:
            return answer, 0
        if region.next_offset < limit_offset and fetched_partition.fetch_offset < log.segments[-1].base_offset:
            self.urgent = True  # a read ends with its segment, but the next one has more: there is no need to wait
        if answer.aborted_transactions is not None:
            answer.aborted_transactions = [
                PartitionAnswer.AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
                for one in log.list_aborted_transactions(fetched_partition.fetch_offset, region.next_offset)
            ]
        answer.records = region.data if isinstance(region, ConvertedRecords) else region
        return answer, region.size_bytes

    def _plan_log_read(self, fetched_partition: FetchedPartition, limit: int, bytes_left: int) -> LogReadRequest:
        """Return the request to the log, whose format is older if the client's version does not know the stored one."""
        version = self.context.version
        return LogReadRequest(
            fetched_partition.fetch_offset,
            min(fetched_partition.max_bytes, bytes_left),
            max(MAX_CONVERTED_BYTES - self.size_bytes, 0),
            limit,
            self.size_bytes == 0 or version < FIRST_WITH_MAX_BYTES,
            magic=2 if version >= FIRST_WITH_FORMAT_2 else 1 if version >= FIRST_WITH_FORMAT_1 else 0,
        )

    def _detect_log_divergence(
        self, fetched_partition: FetchedPartition, partition: Partition, answer: PartitionAnswer
    ) -> bool:
        """Return whether the client's last record is not in this log; then put the end of its epoch into the answer.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) if the epoch is unknown (KIP-320).
        """
        epoch, end_offset = partition.find_end_offset_of_epoch(fetched_partition.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {fetched_partition.last_fetched_epoch} is unknown")
        diverges = epoch < fetched_partition.last_fetched_epoch or end_offset < fetched_partition.fetch_offset
        if diverges:
            answer.diverging_epoch = PartitionAnswer.EpochEndOffset(epoch=epoch, end_offset=end_offset)
            answer.aborted_transactions = None
            self.urgent = True
        return diverges

    # --- waiting --------------------------------------------------------------------------------

    async def add_watch_to_partitions(self, watch: PartitionWatch) -> None:
        """Register `watch` at all partitions, so that it is notified of their appends and changes."""
        for fetched in self.wanted:
            partition = self.context.find_partition(fetched.topic, fetched.index)
            if partition is not None:
                watch.register_as_waiter(partition.waiters)

    async def reread_grown_partitions(self, watch: PartitionWatch) -> None:
        """Read again what `watch` was notified of. Raises DownConversionNeeded as `read_partitions` does."""
        watch.grown, watch.has_changed = {}, False
        self.read_partitions()

    # --- answering ------------------------------------------------------------------------------

    def can_answer_now(self) -> bool:
        """Return whether the answer can be sent now.

        As in Kafka, an unknown partition does not end the wait: a client that keeps asking for it would spin.
        """
        return self.urgent or self.size_bytes >= self.min_bytes or self.unreadable == len(self.answers)

    def make_response(self) -> FetchResponse:
        """Return the answer. In an incremental session it has only the partitions that have changed."""
        answers = self.answers if self.session is None else self._list_answers_to_send()
        topics: list[TopicAnswer] = []
        topic = None
        for fetched, answer, _ in answers:
            if not topics or fetched.topic != topic:  # in the order of the request, as in Kafka
                topic = fetched.topic
                topics.append(self._make_topic_answer(topic))
            topics[-1].partitions.append(answer)
        response = self._assemble_response(topics)
        if self.context.usage is not None and self._charge_quota_for_answer(
            measure_answer_bytes(response, self.context.version)
        ):
            return self._make_throttled_response()
        if self.session is not None:
            for fetched, answer, size_bytes in answers:
                self._remember_sent_partition(self.session, fetched, answer, size_bytes)
        return self._add_leader_endpoints(response)

    async def build_response(self) -> FetchResponse:
        """Return the answer as `make_response` does; a long reading does so in slices."""
        return self.make_response()

    def _charge_quota_for_answer(self, size_bytes: int) -> bool:
        """Charge the client's quota for an answer of this size; return whether the client is throttled instead."""
        context = self.context
        usage = context.usage
        return usage is not None and not context.cluster.quotas.charge_fetched_bytes(context, usage, size_bytes)

    def _make_throttled_response(self) -> FetchResponse:
        """Return an empty answer: the client asks again after the throttle time."""
        if self.session is None or self.request.session_epoch > INITIAL_EPOCH:
            return FetchResponse(session_id=NO_SESSION if self.session is None else self.session.session_id)
        self.context.node.sessions.remove_session(self.session.session_id)
        return FetchResponse(session_id=NO_SESSION)

    def _make_topic_answer(self, name_or_id: Any) -> TopicAnswer:
        by_id = self.context.version >= FIRST_WITH_TOPIC_IDS
        return TopicAnswer(topic_id=name_or_id) if by_id else TopicAnswer(topic=name_or_id)

    def _list_answers_to_send(self) -> list[Answered]:
        """Return the partitions' answers; in an incremental session, only those that are new to the client."""
        if self.request.session_epoch <= INITIAL_EPOCH:
            return self.answers
        return [
            (fetched, answer, size_bytes)
            for fetched, answer, size_bytes in self.answers
            if is_answer_new_to_client(fetched, answer, size_bytes)
        ]

    def _remember_sent_partition(
        self, session: FetchSession, fetched_partition: FetchedPartition, answer: PartitionAnswer, size_bytes: int
    ) -> None:
        """Update the session's partition with the offsets that are sent, and move it to the end if it has records."""
        fetched_partition.remember_sent_offsets(answer.high_watermark, answer.log_start_offset, answer.error_code)
        if size_bytes:
            session.move_to_end(fetched_partition)

    def _assemble_response(self, topics: list[TopicAnswer]) -> FetchResponse:
        session_id = NO_SESSION if self.session is None else self.session.session_id
        return FetchResponse(session_id=session_id, responses=topics)

    def _add_leader_endpoints(self, response: FetchResponse) -> FetchResponse:
        """Add the addresses of leaders, which, as in Kafka, no quota is charged for."""
        if self.urgent and self.context.version >= FIRST_WITH_LEADERS:
            nodes, listener = self.context.cluster.nodes, self.context.connection.listener
            response.node_endpoints = list_leader_endpoints(
                nodes, listener, self.leaders.values(), FetchResponse.NodeEndpoint
            )
        return response


def is_answer_new_to_client(fetched_partition: FetchedPartition, answer: PartitionAnswer, size_bytes: int) -> bool:
    """Return whether a session's client must get this answer: it has records, an error, other offsets or a replica."""
    if answer.preferred_read_replica >= 0 or answer.diverging_epoch is not None:
        return True
    return fetched_partition.has_changed_for_client(
        answer.high_watermark, answer.log_start_offset, answer.error_code, size_bytes
    )


def measure_answer_bytes(response: Message, version: int) -> int:
    """Return the size of an answer, as Kafka charges it."""
    out = Output()
    response.encode_into(out, version)
    return SIZE_BYTES + out.size_bytes


def count_extra_length_bytes(count: int, version: int, answer: type[Message] = FetchResponse) -> int:
    """Return how many bytes more the length field of an array of `count` items takes than that of a small one."""
    return len(encode_unsigned_varint(count + 1)) - 1 if version in answer.flexible else 0
