"""GetTelemetrySubscriptions and PushTelemetry, which a broker answers whether or not it announces them.

Every literal is what Apache Kafka 4.4 answers. It has no plugin here that takes the metrics, and so announces neither.
Intervals are of 100 ms, the shortest, or so long that they never end.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from conformance.wire.test_resource_configs import DELETE, DONE, METRICS, SET, changed
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.configs import ListConfigResourcesRequest
from minibroker.protocol.messages.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from minibroker.protocol.primitives import ZERO_UUID

INSTANCE = bytes(range(100, 116))
NONE, EARLY = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
UNKNOWN, INVALID = ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.INVALID_REQUEST
SHORT_MS, LONG_MS = 100, 3_600_000
NAMES = [f"org.apache.kafka.{role}.{number}." for role in ("producer", "consumer", "admin") for number in range(5)]

Subscribe = Callable[..., None]


@pytest.fixture
def subscribe(connection: Connection, new_name: Callable[[], str]) -> Iterator[Subscribe]:
    """Subscribes to metrics of the clients with the test's id, and waits until that has an effect.

    What other tests on this broker have left would count, too: it is deleted first.
    """
    for left in connection.ask(ListConfigResourcesRequest(), 0).config_resources:
        unsubscribe(connection, left.resource_name)
    name = new_name()

    def change(metrics: str, interval_ms: int = LONG_MS, match: str = "client_id=telemetry") -> None:
        lines = ("metrics", SET, metrics), ("interval.ms", SET, str(interval_ms)), ("match", SET, match)
        assert changed(connection, METRICS, name, *lines) == DONE
        expected = set(metrics.split(",")) if "telemetry" in match else set()
        repeated(lambda: fresh(connection), lambda answer: set(answer.requested_metrics) == expected)

    def fresh(connection: Connection) -> Any:
        with Connection(connection.bootstrap, "telemetry") as other:
            return got(other, ZERO_UUID)

    yield change
    unsubscribe(connection, name)


def unsubscribe(connection: Connection, name: str) -> None:
    changed(connection, METRICS, name, *((key, DELETE, None) for key in ("metrics", "interval.ms", "match")))


@pytest.fixture
def client(connection: Connection) -> Iterator[Connection]:
    with Connection(connection.bootstrap, "telemetry") as opened:
        yield opened


def got(connection: Connection, instance_id: bytes = INSTANCE) -> Any:
    return connection.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)


def pushed(connection: Connection, subscription_id: int, **fields: Any) -> ErrorCode:
    request = PushTelemetryRequest(
        **{"client_instance_id": INSTANCE, "subscription_id": subscription_id, "metrics": b"", **fields}
    )
    return ErrorCode(connection.ask(request, 0).error_code)


def test_telemetry_apis_are_not_announced_without_a_receiver(connection: Connection) -> None:
    asked = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    keys = {api.api_key for api in connection.ask(asked, 4).api_keys}
    assert not {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} & keys


def test_a_client_gets_its_subscription_and_an_instance_id(client: Connection, subscribe: Subscribe) -> None:
    subscribe(",".join(NAMES))
    first, second = got(client, ZERO_UUID), got(client)
    assert first.client_instance_id not in (ZERO_UUID, INSTANCE)
    assert second.client_instance_id == INSTANCE
    assert (second.push_interval_ms, second.telemetry_max_bytes, second.delta_temporality) == (300_000, 1 << 20, True)
    assert second.accepted_compression_types == [4, 3, 1, 2]


@pytest.mark.parametrize(
    ("metrics", "first", "subscription_id"),
    [
        ("*", "*", 630123697),
        ("b.,a.", "b.", 2058580054),
        (",".join(NAMES), "org.apache.kafka.producer.1.", 325081558),
        (",".join(reversed(NAMES)), "org.apache.kafka.admin.1.", 756731729),
    ],
)
def test_the_telemetry_subscription_id_equals_kafkas_for_metrics_in_any_order(
    client: Connection, subscribe: Subscribe, metrics: str, first: str, subscription_id: int
) -> None:
    subscribe(metrics, SHORT_MS)
    answer = got(client)
    assert (answer.requested_metrics[0], answer.subscription_id) == (first, subscription_id)


def test_telemetry_requests_before_the_push_interval_are_throttled(client: Connection, subscribe: Subscribe) -> None:
    subscribe("a.")
    answer = got(client)
    assert (answer.error_code, got(client).error_code) == (NONE, EARLY)
    assert [pushed(client, answer.subscription_id) for _ in range(2)] == [NONE, EARLY]
    assert pushed(client, answer.subscription_id, terminating=True) == NONE
    assert pushed(client, answer.subscription_id) == INVALID


def test_a_push_after_the_interval_is_accepted(client: Connection, subscribe: Subscribe) -> None:
    subscribe("a.", SHORT_MS)
    known = got(client).subscription_id
    for _ in range(2):
        assert pushed(client, known) == NONE
        time.sleep(SHORT_MS * 1.5 / 1000)


def test_a_client_with_an_unknown_subscription_id_may_request_a_new_one_immediately(
    client: Connection, subscribe: Subscribe
) -> None:
    subscribe("a.")
    known = got(client).subscription_id
    assert pushed(client, known + 1) == UNKNOWN
    assert got(client).subscription_id == known
    subscribe("b.")
    assert pushed(client, known) == UNKNOWN
    assert got(client).requested_metrics == ["b."]


def test_an_early_push_is_throttled_before_the_subscription_id_is_validated(
    client: Connection, subscribe: Subscribe
) -> None:
    subscribe("a.")
    known = got(client).subscription_id
    assert [pushed(client, known), pushed(client, known + 1)] == [NONE, EARLY]


@pytest.mark.parametrize("instance_id", [ZERO_UUID, bytes(15) + b"\x01"])
def test_reserved_client_instance_ids_cannot_push(client: Connection, instance_id: bytes) -> None:
    assert pushed(client, 0, client_instance_id=instance_id) == INVALID


def test_a_reserved_client_instance_id_can_get_a_subscription(client: Connection) -> None:
    assert got(client, bytes(15) + b"\x01").error_code == NONE


@pytest.mark.parametrize(
    ("codec", "metrics", "code"),
    [
        (0, b"anything", NONE),
        (1, zlib.compress(b"anything", wbits=31), NONE),
        (1, b"no gzip", ErrorCode.INVALID_RECORD),
        (1, zlib.compress(bytes((1 << 20) + 1), wbits=31), ErrorCode.INVALID_RECORD),
        (0, bytes((1 << 20) + 1), ErrorCode.TELEMETRY_TOO_LARGE),
        (5, b"", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (-1, b"", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_telemetry_pushes_with_an_unknown_codec_or_too_many_bytes_are_rejected(
    client: Connection, subscribe: Subscribe, codec: int, metrics: bytes, code: ErrorCode
) -> None:
    subscribe("a.")
    known = got(client).subscription_id
    assert pushed(client, known, compression_type=codec, metrics=metrics) == code
    again = got(client).error_code
    assert again == (NONE if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE else EARLY)


def test_match_patterns_of_a_subscription_must_match_completely(client: Connection, subscribe: Subscribe) -> None:
    subscribe("a.", match="client_id=telemetry,client_source_address=127[.]0.*,client_software_name=unknown")
    subscribe("a.", match="client_id=tele")
