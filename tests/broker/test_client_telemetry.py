"""Client telemetry: who is asked for what, when a push is taken, and what is kept of it.

That Kafka does the same is shown in conformance/wire; what real clients push, in tests/testing and in conformance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker import client_telemetry
from minibroker.broker.client_telemetry import hash_as_java, sort_as_java_hash_set
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.records.compression import Compression, compress
from tests.broker.handlers.config_requests import CLIENT_METRICS, DELETE, SET, alter
from tests.broker.harness import Harness
from tests.protocol.test_otlp import gauge, metrics, sum_of

INSTANCE = bytes(range(16))
INTERVAL_MS = 1000
NONE, EARLY, UNKNOWN = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_SUBSCRIPTION_ID


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, nodes=2, settings={"client.telemetry.enable": "true"}) as harness:
        subscribe(harness, "s", metrics="org.apache.kafka.,other.")
        yield harness


def subscribe(harness: Harness, name: str, **configs: str) -> None:
    texts = {"interval.ms": str(INTERVAL_MS), **configs}
    assert alter(harness, CLIENT_METRICS, name, *((key, SET, text) for key, text in texts.items()))[0] == NONE


class Pusher:
    """A client on one connection."""

    def __init__(self, harness: Harness, *, node: int = 1, instance_id: bytes = INSTANCE) -> None:
        self.harness = harness
        self.client = harness.client(node=node, limit_bytes=4 << 20)
        self.instance_id = instance_id
        self.subscription_id = 0

    def ask(self, request: Any) -> Any:
        self.client.send(request)
        ((_, answer),) = self.client.responses()
        return answer

    def get(self) -> Any:
        answer = self.ask(GetTelemetrySubscriptionsRequest(client_instance_id=self.instance_id))
        if answer.error_code == NONE:
            self.instance_id, self.subscription_id = answer.client_instance_id, answer.subscription_id
        return answer

    def push(self, data: bytes = b"", codec: int = 0, **more: Any) -> ErrorCode:
        request = PushTelemetryRequest(
            client_instance_id=self.instance_id,
            subscription_id=self.subscription_id,
            compression_type=codec,
            metrics=bytes(compress(codec, data)) if codec in tuple(Compression) else data,
        )
        for name, value in more.items():
            setattr(request, name, value)
        return ErrorCode(self.ask(request).error_code)


def kept(harness: Harness, client_id: str = "test", **more: Any) -> dict[str, float]:
    return {
        each.name: each.value for each in harness.cluster.telemetry.iterate_pushed_client_metrics(client_id, **more)
    }


# --- who is asked for what ------------------------------------------------------------------------


def test_a_client_gets_an_id_and_its_subscription(harness: Harness) -> None:
    pusher = Pusher(harness, instance_id=ZERO_UUID)
    answer = pusher.get()
    assert answer.client_instance_id != ZERO_UUID
    assert sorted(answer.requested_metrics) == ["org.apache.kafka.", "other."]
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (INTERVAL_MS, 1 << 20)
    assert answer.delta_temporality


def test_a_client_without_a_matching_subscription_pushes_no_metrics(harness: Harness) -> None:
    alter(harness, CLIENT_METRICS, "s", *((name, DELETE, None) for name in ("metrics", "interval.ms")))
    answer = Pusher(harness).get()
    assert (answer.requested_metrics, answer.push_interval_ms) == ([], 300_000)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=test", True),
        ("client_id=te", False),
        ("client_id=t.*,client_software_name=unknown", True),
        ("client_id=t.*,client_software_name=librdkafka", False),
        ("client_source_port=1,client_source_address=.*", True),
    ],
)
def test_all_match_patterns_of_a_subscription_must_match_completely(
    harness: Harness, match: str, matches: bool
) -> None:
    subscribe(harness, "s", metrics="m", match=match)
    assert Pusher(harness).get().requested_metrics == (["m"] if matches else [])


def test_an_invalid_match_pattern_is_rejected(harness: Harness) -> None:
    assert alter(harness, CLIENT_METRICS, "t", ("match", SET, "client_id=(?=a)"))[0] == ErrorCode.INVALID_CONFIG


def test_metrics_of_subscriptions_are_combined_and_a_star_means_all(harness: Harness) -> None:
    subscribe(harness, "t", **{"metrics": "more.", "interval.ms": "100"})
    answer = Pusher(harness).get()
    assert (len(answer.requested_metrics), answer.push_interval_ms) == (3, 100)
    subscribe(harness, "t", metrics="*")
    assert Pusher(harness).get().requested_metrics == ["*"]


def test_metric_names_are_in_the_order_of_javas_hash_sets() -> None:
    assert (hash_as_java("hello"), hash_as_java("polygenelubricants")) == (99162322, 1 << 31)
    assert sort_as_java_hash_set(["c", "b", "a"]) == ["a", "b", "c"]
    assert sort_as_java_hash_set(["\U0001f600"]) == ["\U0001f600"]


# --- when -----------------------------------------------------------------------------------------


def test_requests_before_the_push_interval_are_throttled(harness: Harness) -> None:
    pusher = Pusher(harness)
    assert pusher.get().error_code == NONE
    assert pusher.get().error_code == EARLY
    assert pusher.push() == NONE  # the first one after a get may come at once
    assert pusher.push() == EARLY
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push() == NONE
    assert pusher.get().error_code == EARLY
    assert pusher.push(terminating=True) == NONE
    assert pusher.push(terminating=True) == ErrorCode.INVALID_REQUEST


def test_a_changed_subscription_is_sent_at_once(harness: Harness) -> None:
    pusher = Pusher(harness)
    pusher.get()
    subscribe(harness, "s", metrics="new.")
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push() == UNKNOWN
    known = pusher.subscription_id
    assert pusher.get().requested_metrics == ["new."]
    assert pusher.subscription_id != known


def test_a_client_instance_ends_with_its_connection_and_after_inactivity(harness: Harness) -> None:
    pusher = Pusher(harness)
    pusher.get()
    pusher.client.connection.drop_lost_client()
    assert harness.cluster.telemetry.list_connected_instances() == []
    other = Pusher(harness)
    assert other.get().error_code == NONE
    harness.clock.advance(60_001)
    assert harness.cluster.telemetry.list_connected_instances() == []


def test_each_node_has_its_own_client_instances(harness: Harness) -> None:
    assert [Pusher(harness, node=node).get().error_code for node in (1, 2)] == [NONE, NONE]


def test_the_oldest_client_instance_is_evicted(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "INSTANCES_MAX", 2)
    for number in range(3):
        Pusher(harness, instance_id=bytes(15) + bytes((number + 2,))).get()
    assert [each.instance_id[-1] for each in harness.cluster.telemetry.list_connected_instances()] == [3, 4]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("instance_id", [ZERO_UUID, bytes(15) + b"\x01"])
def test_reserved_client_instance_ids_are_rejected(harness: Harness, instance_id: bytes) -> None:
    assert Pusher(harness, instance_id=instance_id).push() == ErrorCode.INVALID_REQUEST


def test_unknown_codecs_and_too_large_pushes_are_rejected(harness: Harness) -> None:
    pusher = Pusher(harness)
    pusher.get()
    assert pusher.push(codec=5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert pusher.get().error_code == NONE  # after this error a client may ask at once
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push(bytes((1 << 20) + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push(bytes(10 << 20), Compression.GZIP) == ErrorCode.INVALID_RECORD
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push(b"no OTLP") == ErrorCode.INVALID_RECORD


def test_telemetry_apis_are_announced_only_when_enabled(harness: Harness) -> None:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    keys = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
    assert keys <= {api.api_key for api in harness.request(asked).api_keys}
    harness.restart(settings={"client.telemetry.enable": "false"})
    assert not keys & {api.api_key for api in harness.request(asked).api_keys}
    pusher = Pusher(harness)
    assert pusher.get().error_code == NONE  # as in Kafka without a plugin
    assert pusher.push(b"no OTLP") == NONE
    assert kept(harness) == {}


# --- what is kept ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Compression))
def test_pushed_gauges_are_replaced_and_pushed_deltas_are_summed(harness: Harness, codec: int) -> None:
    pusher = Pusher(harness)
    pusher.get()
    assert pusher.push(metrics(gauge("g", 1), sum_of("d", 2, 1), sum_of("c", 2, 2)), codec) == NONE
    harness.clock.advance(INTERVAL_MS)
    assert pusher.push(metrics(gauge("g", 5), sum_of("d", 3, 1), sum_of("c", 3, 2)), codec) == NONE
    assert kept(harness) == kept(harness, connected_only=True) == {"g": 5, "d": 5, "c": 3}
    assert kept(harness, "other") == {}
    pusher.client.connection.drop_lost_client()
    assert len(kept(harness)) == 3
    assert kept(harness, connected_only=True) == {}


def test_the_metric_names_of_clients_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "SERIES_PER_CLIENT", 3)
    monkeypatch.setattr(client_telemetry, "SERIES_KEPT", 5)
    for number in range(3):
        pusher = Pusher(harness, instance_id=bytes(15) + bytes((number + 2,)))
        pusher.get()
        names = ["x" * 1001, *(f"{number}.{index}" for index in range(4))]
        assert pusher.push(metrics(*(gauge(name, 1) for name in names))) == NONE
    assert set(kept(harness)) == {"2.0", "2.1", "2.2"}


def test_the_pushed_metrics_of_the_oldest_client_are_evicted(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "CLIENTS_KEPT", 1)
    for number in range(2):
        pusher = Pusher(harness, instance_id=bytes(15) + bytes((number + 2,)))
        pusher.get()
        pusher.push(metrics(gauge(str(number), 1)))
    assert kept(harness) == {"1": 1}


def test_a_large_push_is_decoded_in_steps(harness: Harness) -> None:
    pusher = Pusher(harness)
    pusher.get()
    before = harness.dispatcher.slicer.steps
    assert pusher.push(metrics(*(gauge(str(index), 1) for index in range(20_000)))) == NONE
    assert len(kept(harness)) == client_telemetry.SERIES_PER_CLIENT
    assert harness.dispatcher.slicer.steps - before > 20_000
