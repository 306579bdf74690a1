"""A fast path for an OffsetCommit that differs from the one before only in offsets and leader epochs.

A consumer commits for the same partitions again and again, as the same member, and mostly without metadata. If all
other bytes of a request are those of the one before, and the cluster's metadata has not changed since, neither the
request nor its answer goes through the codec, and a template makes the records. The member is checked each time. This
path refuses nothing: it leaves everything unusual to `offset_commit`.

    size  key  version  correlation id | client id ... partition | offset  epoch | metadata ... | offset  epoch | ...
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final

from minibroker.broker.coordination.coordinator_logs import COORDINATOR_CODES
from minibroker.broker.groups.commits import MARK, CommitTemplate
from minibroker.broker.network.output_items import ErrorAnswerItems
from minibroker.broker.requests.routes import SIZE, SIZE_AND_CORRELATION_ID, encode_answer, encode_response_start
from minibroker.broker.turn import AppendWait, find_append_failure, find_failure_of_pending_batches
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.headers import get_response_header_version
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetCommitResponse
from minibroker.storage.log_settings import MAX_LONG

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.groups.commits import CommittedPartition
    from minibroker.broker.requests.context import RequestContext
    from minibroker.storage.log import Log
    from minibroker.storage.pending import PendingBatches

START_BYTES: Final = 8  # key, version and correlation id
SAID: Final = Struct(">qi")  # offset and leader epoch
FIRST_KNOWN: Final = 6  # has leader epochs, and no retention time any more


class OffsetCommitTemplate:
    """The last OffsetCommit of a connection, and what the next one will have in common with it.

    It is valid for one state of the cluster's metadata, configs and rights: `commits` counts their changes.
    """

    __slots__ = (
        "_answer",
        "_around",
        "_cluster",
        "_commits",
        "_group_id",
        "_groups",
        "_layout",
        "_member",
        "_partition",
        "_size",
        "_template",
        "client_id",
        "version",
    )

    key: ClassVar[ApiKey] = ApiKey.OFFSET_COMMIT

    def __init__(
        self,
        context: RequestContext,
        frame: memoryview,
        request: OffsetCommitRequest,
        offsets: Sequence[CommittedPartition],
        response: OffsetCommitResponse,
    ) -> None:
        """Remember the request in `frame`, and all of its `offsets`. Raises ValueError if its encoding is unusual."""
        self.version = context.version
        self.client_id = context.client_id
        self._cluster = context.cluster
        self._commits = context.cluster.commits
        self._groups = groups = context.cluster.groups
        self._group_id = request.group_id
        self._member = request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        self._partition = groups.log.get_writable_partition(request.group_id)
        self._template = CommitTemplate(groups, request.group_id, offsets)
        self._size = len(frame)
        self._around = _split_frame_around_offsets(frame, request, self.version)
        self._layout = Struct(">" + "qi".join(f"{len(piece)}s" for piece in self._around))
        if len(self._around) != len(offsets) + 1 or not self._differs_only_in_offsets(frame):
            raise ValueError("The request is encoded in an unusual way.")
        self._answer = self._encode_answer(0, response)[START_BYTES:]

    def _encode_answer(self, correlation_id: int, response: OffsetCommitResponse) -> Any:
        """Return the frame of an answer."""
        start = encode_response_start(get_response_header_version(self.key, self.version))
        return encode_answer(response, self.version, start, correlation_id)[0]

    def make_answer_frame(self, correlation_id: int, failure: KafkaError | None) -> Any:
        """Return the frame of the answer, with the error for all partitions if the write has failed."""
        if failure is None:
            return SIZE_AND_CORRELATION_ID.pack(SIZE.size + len(self._answer), correlation_id) + self._answer
        header_bytes = len(encode_response_start(get_response_header_version(self.key, self.version))) - START_BYTES
        response = OffsetCommitResponse.decode(self._answer[header_bytes:], self.version)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = failure.code
        return self._encode_answer(correlation_id, response)

    def run_request_of_frame(self, cluster: Broker, correlation_id: int, frame: memoryview) -> Any:
        """Commit the offsets in `frame`, and return the answer. Return None if `offset_commit` must handle it."""
        if len(frame) != self._size or cluster.commits != self._commits or cluster is not self._cluster:
            return None
        values = self._layout.unpack_from(frame, START_BYTES)
        log = self._partition.log
        if values[::3] != self._around or log.settings.flush_messages != MAX_LONG:
            return None
        try:
            # This node coordinates the group, as nothing has changed. A partition that is not loaded is refused below.
            group = self._groups.groups.get(self._group_id)
            member_id, instance_id, epoch = self._member
            if group is None or group.check_offset_commit(
                member_id, instance_id, epoch, transactional=False, version=self.version
            ):
                return None
            self._template.append_and_apply_offsets(self._groups, group, values[1::3], values[2::3])
        except KafkaError:
            return None
        if not log.pending.headers:
            return [self.make_answer_frame(correlation_id, None)]
        return DueCommitAnswer(self, correlation_id, log, log.pending)

    def _differs_only_in_offsets(self, frame: memoryview) -> bool:
        """Return whether a frame differs from the template's only in offsets and leader epochs."""
        size_bytes = len(frame) - START_BYTES
        return size_bytes == self._layout.size and self._layout.unpack_from(frame, START_BYTES)[::3] == self._around


def remember_commit_template(
    context: RequestContext,
    request: OffsetCommitRequest,
    offsets: Sequence[CommittedPartition],
    response: OffsetCommitResponse,
) -> None:
    """Make a template for the next OffsetCommit, if this is the connection's second in a row of its size and group."""
    connection, frame = context.connection, context.frame
    if frame is None or context.was_paused or context.must_sync or context.usage is not None:
        return
    if context.version < FIRST_KNOWN:
        return
    shape = request.group_id, len(frame)
    if connection.last_plain == shape:
        connection.template = _make_template(context, frame, request, offsets, response)
    connection.last_plain = shape


def _make_template(
    context: RequestContext,
    frame: memoryview,
    request: OffsetCommitRequest,
    offsets: Sequence[CommittedPartition],
    response: OffsetCommitResponse,
) -> OffsetCommitTemplate | None:
    """Return the template, or None if an offset was refused or has metadata, or the frame cannot be split."""
    answered = sum(len(topic.partitions) for topic in response.topics)
    if answered > len(offsets) or any(committed.metadata for _, _, committed in offsets):
        return None  # some were refused, or have metadata
    try:
        return OffsetCommitTemplate(context, frame, request, offsets, response)
    except ValueError:
        return None


class DueCommitAnswer:
    """The answer to an OffsetCommit whose batch is written when the turn ends."""

    __slots__ = ("_correlation_id", "_log", "_pending", "_template")

    def __init__(self, template: OffsetCommitTemplate, correlation_id: int, log: Log, pending: PendingBatches) -> None:
        """`pending` are the batches that are to be written to `log`."""
        self._template = template
        self._correlation_id = correlation_id
        self._log = log
        self._pending = pending

    def list_answer_parts(self) -> list[Any]:
        """Return the items to send, once the turn has ended."""
        if find_failure_of_pending_batches(self._pending) is None:
            return [self._template.make_answer_frame(self._correlation_id, None)]
        failure = find_append_failure(AppendWait(self._log, self._pending, translated_codes=COORDINATOR_CODES))
        return ErrorAnswerItems([self._template.make_answer_frame(self._correlation_id, failure)])


def _split_frame_around_offsets(frame: memoryview, request: OffsetCommitRequest, version: int) -> tuple[bytes, ...]:
    """Return the bytes of a frame before, between and behind the offsets."""
    body = request.encode(version)
    marked = OffsetCommitRequest.decode(body, version)
    for topic in marked.topics:
        for partition in topic.partitions:
            partition.committed_offset, partition.committed_leader_epoch = MARK.offset, MARK.leader_epoch
    head = bytes(frame[START_BYTES : len(frame) - len(body)])
    return tuple((head + marked.encode(version)).split(SAID.pack(MARK.offset, MARK.leader_epoch)))
