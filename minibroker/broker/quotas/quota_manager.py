"""The enforcement of client quotas: computes throttle times (KIP-13, KIP-124, KIP-219, KIP-546, KIP-599).

    request --> handler --> its use is recorded --> over the quota? --> answered at once, with the throttle time
                                                                    --> the connection is muted for that time

A quota is for a user, a client id or both; the first match in `_LEVELS` applies. Clients under a default quota have
separate windows. A Produce is charged the bytes of its request, a Fetch those of its answer, every request the time of
its handler, and a request that creates or deletes partitions their number.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator, Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

from minibroker.broker.quotas.client_quotas import CLIENT_ID, INT_MAX, USER
from minibroker.broker.quotas.quota_windows import Rate, TokenBucket, Windows
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.metadata.image import QuotaEntity
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.security.principals import Principal

PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, MUTATIONS = "request_percentage", "controller_mutation_rate"
PERCENT_A_NS = 100 / 1e9
KEPT_MAX = 10_000  # rates, and buckets; beyond it the idle ones are removed, or else the oldest

UserAndClientId = tuple[str, str]  # user and client id; "" if the quota is not for that part


class Quota(NamedTuple):
    """A limit per second, and the key of the clients that share it."""

    bound: float
    who: UserAndClientId


class RequestUsage:
    """The use of a request so far, and the throttle time of its client."""

    __slots__ = ("_run_ns", "_since_ns", "frame_bytes", "throttle_ms")

    def __init__(self, frame_bytes: int) -> None:
        self.frame_bytes = frame_bytes
        self.throttle_ms = 0
        self._run_ns = 0
        self._since_ns: int | None = perf_counter_ns()  # while the time is charged

    def stop_request_time(self) -> None:
        """Pause the measurement of the request's time."""
        if self._since_ns is not None:
            self._run_ns += perf_counter_ns() - self._since_ns
            self._since_ns = None

    def measure_request_time_ns(self) -> int:
        """Return the measured time since the start, or since the last call."""
        if self._since_ns is not None:
            self.stop_request_time()
            self._since_ns = perf_counter_ns()
        taken_ns, self._run_ns = self._run_ns, 0
        return taken_ns

    def resume_request_time(self) -> None:
        """Resume the measurement of the request's time."""
        self._since_ns = perf_counter_ns()


class MeteredCoroutine:
    """Charges the time in which a coroutine runs: `await Metered(usage, coroutine)`."""

    __slots__ = ("_coroutine", "_usage")

    def __init__(self, usage: RequestUsage, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._usage = usage
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        error: type[Exception] | None = None
        try:
            while True:
                self._usage.resume_request_time()
                try:
                    awaited = self._coroutine.send(error)
                except StopIteration as end:
                    return end.value
                finally:
                    self._usage.stop_request_time()
                error = yield awaited
        finally:
            self._coroutine.close()


class QuotaClient(Protocol):
    """The client of a request, and its use so far, if there are quotas."""

    node: Node
    client_id: str | None
    usage: RequestUsage | None

    @property
    def principal(self) -> Principal:
        """Return the client's authenticated principal."""


def find_quota_of_client(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str, user: str, client_id: str
) -> Quota | None:
    """Return the client's quota of this key, by the most specific entity that has one, or None."""
    for entity, who in _iterate_entities_by_precedence(user, client_id):
        bound = quotas.get(entity, {}).get(key)
        if bound is not None:
            return Quota(bound, who)
    return None


def _iterate_entities_by_precedence(user: str, client_id: str) -> Iterator[tuple[QuotaEntity, UserAndClientId]]:
    """Yield the client's entities in order of precedence, each with the (user, client id) whose use is measured."""
    for named_user in (user, None):
        for named_client in (client_id, None):
            yield frozenset({(USER, named_user), (CLIENT_ID, named_client)}), (user, client_id)
        yield frozenset({(USER, named_user)}), (user, "")
    for named_client in (client_id, None):
        yield frozenset({(CLIENT_ID, named_client)}), ("", client_id)


class QuotaManager:
    """The recent use by the clients of a cluster. Byte rates and times count per node, mutations for all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates: dict[tuple[int, str, UserAndClientId], Rate] = {}
        self._buckets: dict[UserAndClientId, TokenBucket] = {}

    @property
    def is_needed(self) -> bool:
        """Return whether there are any quotas."""
        return bool(self._cluster.image.quotas)

    def charge_request(self, client: QuotaClient, usage: RequestUsage, *, is_produce: bool) -> int:
        """Charge a request before its answer; return the throttle time in ms."""
        if is_produce:
            throttle_ms = self._charge_value_to_quota(client, PRODUCED, usage.frame_bytes)
            usage.throttle_ms = max(usage.throttle_ms, throttle_ms)
        return max(usage.throttle_ms, self._charge_request_time(client, usage))

    def charge_fetched_bytes(self, client: QuotaClient, usage: RequestUsage, size_bytes: int) -> bool:
        """Charge the bytes of an answer, and the time that the request has taken; return whether it may be sent.

        If one of the two is over its quota, the client gets an empty answer instead, and the bytes are not charged.
        """
        throttle_ms = max(
            self._charge_value_to_quota(client, FETCHED, size_bytes), self._charge_request_time(client, usage)
        )
        usage.throttle_ms = max(usage.throttle_ms, throttle_ms)
        if throttle_ms:
            self._undo_charge(client, FETCHED, size_bytes)
        return not throttle_ms

    def _charge_request_time(self, client: QuotaClient, usage: RequestUsage) -> int:
        """Charge the time since the last charge; return the throttle time in ms, at most one window."""
        return min(
            self._charge_value_to_quota(client, REQUESTS, usage.measure_request_time_ns() * PERCENT_A_NS),
            self._make_metric_windows().size_ms,
        )

    def _undo_charge(self, client: QuotaClient, key: str, size_bytes: int) -> None:
        """Undo a charge, as the bytes are not sent after all."""
        quota = self._find_quota(client, key)
        rate = None if quota is None else self._rates.get((client.node.node_id, key, quota.who))
        if rate is not None:
            rate.subtract_value(size_bytes)

    def get_max_fetch_bytes(self, client: QuotaClient, key: str) -> int:
        """Return the most bytes that a quota can ever allow, which limits an answer."""
        quota = self._find_quota(client, key)
        if quota is None:
            return INT_MAX
        windows = self._make_metric_windows()
        return int(quota.bound * (windows.number - 1) * windows.size_ms / 1000)

    def charge_partition_mutations(self, client: QuotaClient, usage: RequestUsage, count: int, *, strict: bool) -> None:
        """Charge partitions that will be created or deleted.

        Raises KafkaError(THROTTLING_QUOTA_EXCEEDED) if it is `strict` and the quota is used up; otherwise throttle the
        client.
        """
        quota = self._find_quota(client, MUTATIONS)
        if quota is None:
            return
        now_ms = int(self._cluster.clock.monotonic_ms())
        bucket = self._buckets.get(quota.who)
        if bucket is None:
            if len(self._buckets) >= KEPT_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[quota.who] = TokenBucket(self._make_controller_windows())
        if strict:
            throttle_ms = bucket.compute_throttle_ms(quota.bound, now_ms)
            if throttle_ms:
                usage.throttle_ms = max(usage.throttle_ms, throttle_ms)
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        bucket.take_tokens(count, quota.bound, now_ms)
        if not strict:
            usage.throttle_ms = max(usage.throttle_ms, bucket.compute_throttle_ms(quota.bound, now_ms))

    def _charge_value_to_quota(self, client: QuotaClient, key: str, value: float) -> int:
        """Charge a value to the client's quota of this key, if it has one; return the throttle time in ms."""
        quota = self._find_quota(client, key)
        if quota is None:
            return 0
        now_ms = int(self._cluster.clock.monotonic_ms())
        place = client.node.node_id, key, quota.who
        rate = self._rates.get(place)
        if rate is None:
            self._remove_idle_windows(now_ms)
            rate = self._rates[place] = Rate(self._make_metric_windows())
        rate.record_value(value, now_ms)
        return rate.compute_throttle_ms(quota.bound, now_ms)

    def _find_quota(self, client: QuotaClient, key: str) -> Quota | None:
        return find_quota_of_client(self._cluster.image.quotas, key, client.principal.name, client.client_id or "")

    def _make_metric_windows(self) -> Windows:
        """Return the number and length of the windows in which requests and bytes are measured."""
        settings = self._cluster.settings
        return Windows(settings["quota.window.num"], 1000 * settings["quota.window.size.seconds"])

    def _make_controller_windows(self) -> Windows:
        """Return the number and length of the windows in which partition mutations are measured."""
        settings = self._cluster.settings
        size_s: int = settings["controller.quota.window.size.seconds"]
        return Windows(settings["controller.quota.window.num"], 1000 * size_s)

    def _remove_idle_windows(self, now_ms: int) -> None:
        if len(self._rates) >= KEPT_MAX:
            self._rates = {place: rate for place, rate in self._rates.items() if not rate.is_idle(now_ms)}
        if len(self._rates) >= KEPT_MAX:
            del self._rates[next(iter(self._rates))]
