"""Client telemetry (KIP-714): which clients are to send which metrics, when each may, and what they sent last.

Subscriptions are configs of the resource type CLIENT_METRICS. A client instance exists from its first request until its
connection ends or it is silent for long; each node knows its own, as brokers of Kafka do. What clients pushed is kept
beyond that, for tests; the broker's own metrics show those of connected clients.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from minibroker.broker.configs.client_metrics import (
    CLIENT_METRICS_SETTINGS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    make_illegal_pattern_error,
    parse_match_expressions,
)
from minibroker.broker.configs.settings_values import parse_setting_value
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import CLIENT_METRICS_RESOURCE
from minibroker.protocol.otlp import DataPoint
from minibroker.protocol.primitives import ZERO_UUID, format_uuid
from minibroker.protocol.records.crc import crc32c

if TYPE_CHECKING:
    from minibroker.broker.clock import Timer
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.network.connection import Connection
    from minibroker.patterns.program import Pattern

log = logging.getLogger("minibroker.telemetry")

ENABLED = "client.telemetry.enable"
ALL = "*"
INSTANCES_MAX = 16_384  # as in Kafka
SILENCE_MS = 60_000  # or three intervals: after that, an instance is forgotten
RESERVED = (ZERO_UUID, bytes(15) + b"\x01")
INT32 = 1 << 32
# What is kept of pushes: clients choose the names.
CLIENTS_KEPT = 1000
SERIES_PER_CLIENT = 1000
SERIES_KEPT = 50_000
SERIES_CHARACTERS = 1000  # of a name and its attributes

Texts = Mapping[str, str]
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class ClientMetric(NamedTuple):
    """A metric that a client pushed: its newest value, or the sum of its pushes for one that counts."""

    client_id: str
    client_instance_id: str
    name: str
    attributes: dict[str, str]
    value: float


class TelemetrySubscription(NamedTuple):
    """What clients are asked for if they match all patterns, which are by parameter."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Pattern] | None  # None matches nobody

    def matches_client(self, parameters: Mapping[str, str | None]) -> bool:
        """Return whether the subscription's patterns match a client with these parameters."""
        if self.patterns is None:
            return False
        from minibroker.patterns.syntax import InvalidPattern

        try:
            return all(
                (value := parameters[name]) is not None and pattern.matches(value)
                for name, pattern in self.patterns.items()
            )
        except InvalidPattern as error:
            log.warning("a subscription to client metrics matches nobody: %s", error)
            return False


class ClientInstance:
    """A client that has asked for its subscription. Times are in ms, by the wall clock."""

    def __init__(self, instance_id: bytes, parameters: Mapping[str, str | None], connection: Connection) -> None:
        self.instance_id = instance_id
        self.parameters = parameters
        self.connection = connection
        self.metrics: list[str] = []
        self.interval_ms = 0
        self.subscription_id = 0
        self.generation = -1  # of the subscriptions
        self.terminating = False
        self.last_error = ErrorCode.NONE
        self.timer: Timer | None = None
        self._got_ms = self._pushed_ms = 0

    def apply_subscriptions(self, subscriptions: Iterable[TelemetrySubscription], generation: int) -> None:
        """Take the metrics and the push interval from the subscriptions that match this client."""
        self.interval_ms = CLIENT_METRICS_SETTINGS[INTERVAL_MS].default  # type: ignore[assignment]
        wanted: dict[str, None] = {}
        for subscription in subscriptions:
            if subscription.matches_client(self.parameters):
                wanted.update(dict.fromkeys(subscription.metrics))
                self.interval_ms = min(self.interval_ms, subscription.interval_ms)
        self.metrics = [ALL] if ALL in wanted else sort_as_java_hash_set(wanted)
        text = f"[{', '.join(self.metrics)}]{self.interval_ms}"
        self.subscription_id = wrap_to_int32(crc32c(text.encode()) ^ hash_uuid_as_java(self.instance_id))
        self.generation = generation
        self.terminating, self.last_error = False, ErrorCode.NONE
        self._got_ms = self._pushed_ms = 0

    def check_and_record_get_request(self, now_ms: int) -> bool:
        """Return whether the push interval is over since the last request for subscriptions; if so, record this one."""
        if now_ms - max(self._got_ms, self._pushed_ms) < self.interval_ms:
            return False
        self._got_ms = now_ms
        return True

    def check_and_record_push_request(self, now_ms: int) -> bool:
        """Return whether the client may push: the interval is over, or it asked for subscriptions; if so, record it."""
        if self._got_ms <= self._pushed_ms and now_ms - self._pushed_ms < self.interval_ms:
            return False
        self._pushed_ms = now_ms
        return True


class PushedMetrics:
    """What a client instance pushed. `dropped` counts numbers that were too many, or had too long names."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.series: dict[SeriesKey, float] = {}
        self.dropped = 0

    def add_data_point(self, point: DataPoint) -> int:
        """Keep the data point, or count it as dropped; return 1 if it begins a series, else 0."""
        key = point.name, point.attributes
        known = self.series.get(key)
        if known is None:
            length = len(point.name) + sum(len(name) + len(value) for name, value in point.attributes)
            if len(self.series) >= SERIES_PER_CLIENT or length > SERIES_CHARACTERS:
                self.dropped += 1
                return 0
        self.series[key] = point.value + (known or 0 if point.is_delta else 0)
        return int(known is None)


class ClientTelemetry:
    """The subscriptions, the client instances of each node, and what they pushed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._instances: OrderedDict[tuple[int, bytes], ClientInstance] = OrderedDict()
        self._pushed: OrderedDict[bytes, PushedMetrics] = OrderedDict()
        self._series = 0
        self._subscriptions: list[TelemetrySubscription] = []
        self._configs: dict[str, dict[str, str]] = {}
        self._commits = -1
        self._generation = 0

    @property
    def is_enabled(self) -> bool:
        """Return whether `client.telemetry.enable` is true, so that clients may push metrics."""
        enabled: bool = self._cluster.settings[ENABLED]
        return enabled

    # --- requests -------------------------------------------------------------------------------

    def get_subscribing_instance(
        self, connection: Connection, client_id: str | None, instance_id: bytes
    ) -> ClientInstance:
        """Return the instance of a client that asks what to push. Raises KafkaError(THROTTLING_QUOTA_EXCEEDED)."""
        instance = self._find_or_make_instance(
            connection, client_id, self._make_instance_id() if instance_id == ZERO_UUID else instance_id
        )
        again = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if (
            not instance.check_and_record_get_request(self._cluster.clock.wall_ms())
            and instance.last_error not in again
        ):
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance

    def find_or_make_pushing_instance(
        self, connection: Connection, client_id: str | None, instance_id: bytes
    ) -> ClientInstance:
        """Return the instance of a client that pushes. Raises KafkaError(INVALID_REQUEST)."""
        if instance_id in RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "invalid client instance id")
        return self._find_or_make_instance(connection, client_id, instance_id)

    def store_pushed_data_points(self, instance: ClientInstance, points: Iterable[DataPoint | None]) -> Iterator[None]:
        """Store the data points of a push, one per step; None stands for one to skip. Raises what `points` raises."""
        for point in points:
            if point is not None:
                # Looked up each time: others may have taken its place since the last step.
                self._series += self.find_or_make_pushed_metrics(instance).add_data_point(point)
            yield
        while self._series > SERIES_KEPT:
            self._drop_oldest_pushed_metrics()

    def find_or_make_pushed_metrics(self, instance: ClientInstance) -> PushedMetrics:
        pushed = self._pushed.get(instance.instance_id)
        if pushed is None:
            if len(self._pushed) >= CLIENTS_KEPT:
                self._drop_oldest_pushed_metrics()
            pushed = self._pushed[instance.instance_id] = PushedMetrics(instance.parameters["client_id"] or "")
        else:
            self._pushed.move_to_end(instance.instance_id)
        return pushed

    def _drop_oldest_pushed_metrics(self) -> None:
        _, oldest = self._pushed.popitem(last=False)
        self._series -= len(oldest.series)

    # --- what is known --------------------------------------------------------------------------

    def iterate_pushed_client_metrics(
        self, client_id: str | None = None, *, connected_only: bool = False
    ) -> Iterator[ClientMetric]:
        """Yield the metrics that clients have pushed: of one client id or all, or of connected clients only."""
        there = {each.instance_id for each in self.list_connected_instances()} if connected_only else self._pushed
        for instance_id, pushed in list(self._pushed.items()):
            if instance_id in there and client_id in (None, pushed.client_id):
                text = format_uuid(instance_id)
                for (name, attributes), value in list(pushed.series.items()):
                    yield ClientMetric(pushed.client_id, text, name, dict(attributes), value)

    def list_connected_instances(self) -> list[ClientInstance]:
        """Return the instances of all nodes whose connections are open."""
        return [each for each in self._instances.values() if not each.connection.closed]

    # --- instances ------------------------------------------------------------------------------

    def _make_instance_id(self) -> bytes:
        from minibroker.protocol.primitives import make_uuid

        return make_uuid(self._cluster.random)

    def _find_or_make_instance(
        self, connection: Connection, client_id: str | None, instance_id: bytes
    ) -> ClientInstance:
        self._refresh_subscriptions_if_changed()
        key = connection.node.node_id, instance_id
        instance = self._instances.get(key)
        if instance is not None and instance.connection.closed:
            self._remove_instance(key)
            instance = None
        if instance is None:
            if len(self._instances) >= INSTANCES_MAX:
                self._remove_instance(next(iter(self._instances)))
            instance = self._instances[key] = ClientInstance(
                instance_id, get_match_parameters(connection, client_id, instance_id), connection
            )
        if instance.generation != self._generation:
            instance.apply_subscriptions(self._subscriptions, self._generation)
        self._instances.move_to_end(key)
        self._restart_expiry_timer(key, instance)
        return instance

    def _restart_expiry_timer(self, key: tuple[int, bytes], instance: ClientInstance) -> None:
        """Remove the instance of this (node id, instance id) unless it sends a request within some push intervals."""
        if instance.timer is not None:
            instance.timer.cancel()
        silence_ms = max(SILENCE_MS, 3 * instance.interval_ms)
        instance.timer = self._cluster.clock.call_later(silence_ms, lambda: self._remove_instance(key))

    def _remove_instance(self, key: tuple[int, bytes]) -> None:
        instance = self._instances.pop(key)
        if instance.timer is not None:
            instance.timer.cancel()

    def _refresh_subscriptions_if_changed(self) -> None:
        """Read the subscriptions again if their configs have changed."""
        if self._commits == self._cluster.commits:
            return
        self._commits = self._cluster.commits
        configs = self._cluster.image.configs
        found = {name: dict(texts) for (kind, name), texts in configs.items() if kind == CLIENT_METRICS_RESOURCE}
        found = {name: texts for name, texts in found.items() if texts}
        if found != self._configs:
            self._configs = found
            self._subscriptions = [_parse_subscription(name, texts) for name, texts in found.items()]
            self._generation += 1


def _parse_subscription(name: str, texts: Texts) -> TelemetrySubscription:
    """Return the subscription of this name from its configs, which are `texts` by name."""

    def get_setting(setting: str) -> object:
        row = CLIENT_METRICS_SETTINGS[setting]
        return parse_setting_value(row, setting, texts[setting]) if setting in texts else row.default

    metrics, interval_ms = get_setting(METRICS), get_setting(INTERVAL_MS)
    assert isinstance(metrics, tuple) and isinstance(interval_ms, int)
    try:
        patterns = compile_match_patterns(texts.get(MATCH, ""))
    except KafkaError as error:
        log.warning("the subscription %s to client metrics matches nobody: %s", name, error)
        patterns = None
    return TelemetrySubscription(metrics, interval_ms, patterns)


def compile_match_patterns(text: str) -> dict[str, Pattern]:
    """Compile the patterns of `match`, by their parameters. Raises KafkaError(INVALID_CONFIG).

    They are expressions of RE2: those of Java have more, and may take for ever.
    """
    from minibroker.patterns.program import Pattern
    from minibroker.patterns.syntax import InvalidPattern

    patterns = {}
    for parameter, expression in parse_match_expressions(text).items():
        try:
            patterns[parameter] = Pattern(expression)
        except InvalidPattern:
            raise make_illegal_pattern_error(f"{parameter}={expression}") from None
    return patterns


def get_match_parameters(connection: Connection, client_id: str | None, instance_id: bytes) -> dict[str, str | None]:
    """Return the client's values for the parameters of `match` expressions; None for what is not known."""
    software, _, version = connection.software.partition(" ")
    _, _, port = connection.peer.rpartition(":")
    return {
        "client_instance_id": format_uuid(instance_id),
        "client_id": client_id,
        "client_software_name": software or "unknown",
        "client_software_version": version or "unknown",
        "client_source_address": connection.host,
        "client_source_port": port,
    }


# --- as Java does ---------------------------------------------------------------------------------


def sort_as_java_hash_set(texts: Iterable[str]) -> list[str]:
    """Return the texts in the order of a HashSet: the id of a subscription depends on it."""
    listed = list(texts)
    buckets = 16
    while len(listed) > buckets * 3 // 4:
        buckets *= 2
    return sorted(listed, key=lambda text: _spread_hash_bits(hash_as_java(text)) & (buckets - 1))


def _spread_hash_bits(value: int) -> int:
    """Return the hash as Java's HashMap spreads it, for its choice of a slot."""
    return value ^ value >> 16


def hash_as_java(text: str) -> int:
    """Return String.hashCode as a uint32."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) % INT32
    return value


def hash_uuid_as_java(raw: bytes) -> int:
    """Return Uuid.hashCode as a uint32."""
    words = memoryview(raw).cast("B")
    value = 0
    for start in range(0, len(words), 4):
        value ^= int.from_bytes(words[start : start + 4], "big")
    return value


def wrap_to_int32(value: int) -> int:
    """Return a uint32 as the int32 with the same bits."""
    return value - INT32 if value >= INT32 // 2 else value
