"""The context of a request, with the services of handlers: topics, partitions, authorization, waits, throttling.

The parts of a request that were rejected get one line in the log for each reason, however many they are. The handler
chooses the level, and answers the client.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from minibroker.broker.delayed_operations import OperationStage, Slicer
from minibroker.broker.metadata.leaders import get_led_partition
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.security import audit
from minibroker.broker.security.operations import CLUSTER_NAME, DENIALS, OPERATIONS, ResourceType, Right
from minibroker.broker.turn import AppendWait
from minibroker.protocol.apis import ApiKey, get_api_name
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.metadata.partitions import Partition, Topic
    from minibroker.broker.network.connection import Connection
    from minibroker.broker.network.framing import PartialFrame
    from minibroker.broker.quotas.quota_manager import RequestUsage
    from minibroker.broker.requests.interceptors import Call
    from minibroker.broker.requests.routes import Route
    from minibroker.broker.security.principals import Principal
    from minibroker.broker.turn import Refuse
    from minibroker.protocol.declare import Message


MOST_NAMINGS = 10  # of the same thing in a request, as a few kilobytes could otherwise ask for gigabytes


class NameRepetitions:
    """The names in a request so far. Kafka answers each repetition; clients name nothing more than once or twice."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def count_or_refuse_name(self, name: Hashable) -> None:
        """Count a name. Raises KafkaError(INVALID_REQUEST) beyond ten of the same."""
        self._counts[name] += 1
        if self._counts[name] > MOST_NAMINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names it more than {MOST_NAMINGS} times.")


Refusals = dict[ErrorCode, "RefusalReason"]  # of one request
TooLate = tuple[int, KafkaError]  # after so many ms, and then with this error


class RequestContext:
    """The context of a request: its node, client and version, and what its answer waits for."""

    __slots__ = (
        "cache_place",
        "call",
        "client_id",
        "cluster",
        "commits",
        "connection",
        "correlation_id",
        "frame",
        "frame_is_kept",
        "is_own",
        "kept",
        "long_arrays",
        "may_take_apart",
        "must_sync",
        "node",
        "refusals",
        "refuses_zstd",
        "route",
        "slicer",
        "stage",
        "usage",
        "version",
        "waits",
        "was_paused",
    )

    def __init__(
        self,
        cluster: Broker,
        connection: Connection,
        route: Route,
        correlation_id: int,
        client_id: str | None,
        slicer: Slicer,
    ) -> None:
        """`frame_is_kept` says whether the request's records stay valid until it is answered, and not only now.

        `kept` is the frame that was handed over for that, until it has an owner that closes it.
        """
        self.cluster = cluster
        self.connection = connection
        self.node: Node = connection.node
        self.route = route
        self.version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.slicer = slicer
        self.frame: memoryview | None = None  # the request's bytes, during the first slice of its handler
        self.call: Call | None = None  # with interceptors
        self.frame_is_kept = False
        self.is_own = False  # whether it is a request of this process, which has all rights
        self.kept: PartialFrame | None = None
        self.long_arrays: tuple[list[Any], ...] | list[list[Any]] = ()
        self.may_take_apart = False  # the request and its answer, as the handler and the writer alone see them
        self.refusals: Refusals | None = None
        self.refuses_zstd = False  # of a Fetch: whether topics with compression.type=zstd are refused
        self.waits: list[tuple[AppendWait, Refuse, TooLate | None]] | None = None
        self.must_sync = False
        self.stage = OperationStage.COMING
        self.was_paused = False  # whether it has needed more than a slice
        self.commits = 0  # of the cluster's metadata, when the handler began
        self.cache_place: Any = None  # of the answer, if it can be cached
        self.usage: RequestUsage | None = None  # if anybody has a quota

    @property
    def key(self) -> ApiKey:
        """Return the API key."""
        return self.route.key

    # --- who asks, and what may they do ---------------------------------------------------------

    @property
    def principal(self) -> Principal:
        """Return the client's authenticated principal."""
        return self.connection.principal

    def allows(self, right: Right, name: str = CLUSTER_NAME, *, is_needed: bool = False) -> bool:
        """Return whether the principal has a right on a resource; write that to the audit log if the right `is_needed`.

        Without an authorizer it has all rights.
        """
        authorizer, connection = self.cluster.authorizer, self.connection
        if authorizer is None or self.is_own:
            return True
        is_allowed = authorizer.allows_operation(connection.principal, connection.host, right, name)
        if is_needed and (not is_allowed or audit.log.isEnabledFor(logging.DEBUG)):
            audit.log_verdict(connection.principal, connection.host, right, name, is_allowed=is_allowed)
        return is_allowed

    def allows_on_any_resource(self, right: Right) -> bool:
        """Return whether the principal has a right on any resource of the type: Kafka's authorizeByResourceType."""
        authorizer, connection = self.cluster.authorizer, self.connection
        if authorizer is None or self.is_own:
            return True
        return authorizer.allows_on_any_resource(connection.principal, connection.host, right)

    def authorize(self, right: Right, name: str = CLUSTER_NAME, *, message: str | None = None) -> None:
        """Raise KafkaError unless the principal has a right on the resource of this name.

        Raises KafkaError with `message` and the resource type's code, such as TOPIC_AUTHORIZATION_FAILED.
        """
        if not self.allows(right, name, is_needed=True):
            raise KafkaError(DENIALS[right.resource_type], message)

    def authorize_topic(self, right: Right, name_or_id: str | bytes) -> None:
        """Raise KafkaError unless the principal has a right on the topic of this name or id.

        Raises KafkaError: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID.
        """
        self.authorize(right, name_or_id if isinstance(name_or_id, str) else self.get_topic(name_or_id).name)

    def get_allowed_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the principal's allowed operations on a resource, as an int32 with a bit for each (KIP-430)."""
        return sum(1 << right.operation for right in OPERATIONS[resource_type] if self.allows(right, name))

    def charge_and_throttle(self, response: Message | None) -> None:
        """Charge the request to the client's quotas, and mute its connection if it exceeds them.

        The throttle time, in ms, is put into the answer, which is sent at once (KIP-219).
        """
        usage, self.usage = self.usage, None
        if usage is None:
            return
        throttle_ms = self.cluster.quotas.charge_request(self, usage, is_produce=self.route.key == ApiKey.PRODUCE)
        if throttle_ms:
            self.connection.mute()
            self.cluster.clock.call_later(throttle_ms, self.connection.unmute)
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms

    def charge_mutations(self, count: int, *, strict: bool) -> None:
        """Charge partitions that will be created or deleted. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED)."""
        if self.usage is not None:
            self.cluster.quotas.charge_partition_mutations(self, self.usage, count, strict=strict)

    # --- what there is --------------------------------------------------------------------------

    def find_topic(self, name_or_id: str | bytes) -> Topic | None:
        """Return the topic of this name or id, or None."""
        image = self.cluster.image
        return image.topics.get(name_or_id) if isinstance(name_or_id, str) else image.topics_by_id.get(name_or_id)

    def find_partition(self, name_or_id: str | bytes, index: int) -> Partition | None:
        """Return this partition of the topic of this name or id, or None; any node may lead it."""
        topic = self.find_topic(name_or_id)
        return None if topic is None else topic.find_partition(index)

    def get_topic(self, name_or_id: str | bytes, message: str | None = None) -> Topic:
        """Return the topic of this name or id.

        Raises KafkaError with `message`: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.
        """
        topic = self.find_topic(name_or_id)
        if topic is None:
            by_name = isinstance(name_or_id, str)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID, message)
        return topic

    def get_led_partition(self, name_or_id: str | bytes, index: int) -> Partition:
        """Return this partition of the topic of this name or id, which this node leads.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        topic = self.cluster.image.topics.get(name_or_id) if isinstance(name_or_id, str) else self.get_topic(name_or_id)
        return get_led_partition(self.node.node_id, topic, index)

    # --- what the answer waits for --------------------------------------------------------------

    def delay_answer_until_wait_is_over(
        self, wait: AppendWait, set_error: Refuse, too_late: TooLate | None = None
    ) -> None:
        """Delay the answer until `wait` is over, or until `too_late` (ms, error); `set_error` puts an error into it."""
        if not wait.is_over:
            if self.waits is None:
                self.waits = []
            self.waits.append((wait, set_error, too_late))
            self.must_sync = self.must_sync or wait.synced

    def delay_answer_until_metadata_is_synced(self) -> None:
        """Delay the answer until all metadata changes are synced; close the connection if they may be lost."""
        metadata = self.cluster.metadata_log.storage
        self.delay_answer_until_wait_is_over(
            AppendWait(metadata, metadata.pending_batches, synced=True), _raise_unanswerable
        )

    def release_frame_before_wait(self) -> None:
        """Release the frame, and count the request among those in memory, as it waits for more than its turn."""
        if self.call is not None and self.stage is OperationStage.COMING and not self.frame_is_kept:
            self.call.copy_frame()  # a hook holds it
            self.frame_is_kept = True
        self.frame = None
        self.release_frame()
        self.connection.count_delayed_request_bytes()

    def report_answer_lost(self) -> None:
        """Note that nobody gets the answer."""
        if self.call is not None:
            self.call.report_answer_lost()

    def release_frame(self) -> None:
        """Close the request's frame, if it was kept."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept.close()

    def begin_handler(self, cluster: Broker) -> None:
        """Begin to run the handler on `cluster`, without waits and refusals of an earlier run."""
        self.stage, self.cluster, self.commits = OperationStage.RUNNING, cluster, cluster.commits
        self.waits = self.refusals = None
        self.must_sync = False

    def keep_frame_for_later_steps(self) -> bool:
        """Keep the request's records valid for later steps; return False if they must be copied."""
        if not self.frame_is_kept:
            self.kept = self.connection.detach_frame_buffer()
            self.frame_is_kept = self.kept is not None
        return self.frame_is_kept


def _raise_unanswerable(failure: KafkaError) -> None:
    """Raise UnanswerableRequest, which closes the connection, as nobody knows whether the change will survive."""
    raise UnanswerableRequest(f"what was changed may be lost: {failure}")


class RefusalReason:
    """The reason why parts of a request are rejected, with the first of them and their number."""

    __slots__ = ("count", "error", "partition", "topic")

    def __init__(self, error: KafkaError, topic: str, partition: int | None) -> None:
        self.error = error
        self.topic = topic
        self.partition = partition
        self.count = 0

    def __str__(self) -> str:
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return where if self.count == 1 else f"{where} and {self.count - 1} more"


def count_refusal(context: RequestContext, error: KafkaError, topic: str, partition: int | None = None) -> None:
    """Count a topic, or one of its partitions, that is rejected with this error."""
    if context.refusals is None:
        context.refusals = {}
    reason = context.refusals.get(error.code)
    if reason is None:
        reason = context.refusals[error.code] = RefusalReason(error, topic, partition)
    reason.count += 1


def log_refusals(context: RequestContext, logger: logging.Logger, key: ApiKey, level: int = logging.INFO) -> None:
    """Log a line for each reason why parts of the request were rejected."""
    refusals, context.refusals = context.refusals, None
    for reason in (refusals or {}).values():
        log_refusal_reason(context.client_id, logger, key, reason, level)


def log_refusal_reason(
    client_id: str | None, logger: logging.Logger, key: ApiKey, reason: RefusalReason, level: int = logging.INFO
) -> None:
    """Log why parts of a request of this client were rejected."""
    if not logger.isEnabledFor(level):
        return
    api = get_api_name(key)
    fields = {"api": api, "client": client_id, "topic": reason.topic, "partition": reason.partition}
    fields |= {"code": reason.error.code.name, "count": reason.count}
    logger.log(level, f"{api} from %s refused for %s: %s", client_id, reason, reason.error, extra=fields)
