"""From frames to handlers: versions that are served, announced and refused, and requests that cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from struct import pack

import pytest

from minibroker.broker.delayed_operations import Promise, Slicer, pause
from minibroker.broker.monitoring.request_statistics import RequestStatistics
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import SERVED, handles
from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from tests.broker.harness import Harness, answer_in, frame_of
from tests.cases import for_each

HELLO = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def test_every_served_version_is_declared(tmp_path: Path) -> None:
    with Harness(tmp_path):
        for key, served in SERVED.items():
            declared = get_request_class(key).versions
            assert served.versions[-1] == declared[-1], key
            assert set(served.versions) <= set(declared), key


def test_api_versions_announces_exactly_the_served_apis(tmp_path: Path) -> None:
    everything = {"client.telemetry.enable": "true", "unstable.api.versions.enable": "true"}
    with Harness(tmp_path, settings=everything) as harness:
        answer = harness.request(HELLO, 4)
        announced = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        served = {key: (row.versions[0], row.versions[-1]) for key, row in SERVED.items()}
        assert announced == served
        assert announced[ApiKey.PRODUCE] == (0, 13)


@pytest.mark.parametrize("version", [6, 99, -1])
def test_an_unknown_api_versions_version_is_answered_in_version_0(tmp_path: Path, version: int) -> None:
    frame = frame_of(HELLO, 4)
    with Harness(tmp_path) as harness:
        client = harness.client()
        client.send_bytes(frame[:6] + pack(">h", version) + frame[8:])
        correlation_id, answer = answer_in(client.sent_bytes(), ApiKey.API_VERSIONS, 0)
        assert correlation_id == 7
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 5)]
        assert not client.closed


@pytest.mark.parametrize(
    ("key", "version", "said"),
    [
        (ApiKey.METADATA, 99, "Metadata (key 3) version 99"),
        (ApiKey.PRODUCE, 14, "Produce (key 0) version 14"),
        (1000, 0, "an unknown API (key 1000) version 0"),
        (-1, 0, "an unknown API (key -1) version 0"),
        (4, 0, "an unknown API (key 4) version 0"),
    ],
)
def test_an_unsupported_request_closes_the_connection(tmp_path: Path, key: int, version: int, said: str) -> None:
    frame = frame_of(MetadataRequest(), 12)
    with Harness(tmp_path) as harness:
        client = harness.client()
        client.send_bytes(frame[:4] + pack(">hh", key, version) + frame[8:])
        assert client.closed
        assert client.failure == f"{said}, which is not served here"


def test_a_truncated_request_closes_the_connection_and_logs_the_field(tmp_path: Path) -> None:
    frame = frame_of(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12)
    with Harness(tmp_path) as harness:
        client = harness.client()
        client.send_bytes(pack(">i", len(frame) - 10) + frame[4:-6])
        assert client.closed
        assert "MetadataRequest v12" in str(client.failure)


def test_bytes_after_a_request_are_ignored(tmp_path: Path) -> None:
    frame = frame_of(MetadataRequest(), 12)
    with Harness(tmp_path) as harness:
        client = harness.client()
        client.send_bytes(pack(">i", len(frame) - 4 + 3) + frame[4:] + b"xyz")
        _, answer = answer_in(client.sent_bytes(), ApiKey.METADATA, 12)
        assert len(answer.brokers) == 1


def test_a_client_without_a_client_id_is_served(tmp_path: Path) -> None:
    with Harness(tmp_path) as harness:
        assert harness.request(MetadataRequest(), client_id=None).brokers


def test_two_handlers_for_one_api_are_rejected() -> None:
    assert SERVED[ApiKey.METADATA].handler
    with pytest.raises(ValueError, match="METADATA has a handler already"):
        handles(ApiKey.METADATA)(lambda context, request: None)


@for_each("key", SERVED)
def test_each_api_has_its_handler_in_its_own_file(key: int) -> None:
    handler = SERVED[key].handler  # where it is compiled, it does not know its module
    rooms = [module for name, module in sys.modules.items() if name.startswith("minibroker.broker.handlers.")]
    assert any(vars(module).get(handler.__name__) is handler for module in rooms)


def test_a_handler_that_awaits_a_resolved_promise_is_answered_at_once(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        there: Promise[MetadataResponse] = Promise()
        there.resolve(MetadataResponse(cluster_id="at once"))
        return await there

    monkeypatch.setattr(SERVED[ApiKey.METADATA], "handler", handler)
    client = harness.client()
    client.send(MetadataRequest(), 12)
    client.send(MetadataRequest(), 12)
    assert [answer.cluster_id for _, answer in client.responses()] == ["at once", "at once"]


@pytest.mark.parametrize("watched", [False, True])
def test_a_delayed_request_that_fails_later_closes_only_its_own_connection(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, watched: bool
) -> None:
    later, asked = Promise[MetadataResponse](), []

    async def handler(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        asked.append(request)
        if len(asked) > 1:
            raise ZeroDivisionError("a mistake of mine")
        return await later

    monkeypatch.setattr(SERVED[ApiKey.METADATA], "handler", handler)
    if watched:
        harness.dispatcher.interceptors.append(RequestStatistics())
    client = harness.client()
    client.send(MetadataRequest(), 12)
    client.connection.rerun_delayed_request()
    assert client.closed and not client.sent_bytes() and not client.connection.has_delayed_request
    assert "closing test:1 (client id 'test'): a request failed" in caplog.text
    later.resolve(MetadataResponse())
    assert not client.sent_bytes()


def test_an_exception_is_logged_even_if_the_client_has_disconnected(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
        await pause()
        raise ZeroDivisionError("a mistake of mine")

    monkeypatch.setattr(SERVED[ApiKey.CREATE_TOPICS], "handler", handler)
    soon: list[Callable[[], None]] = []
    harness.dispatcher.slicer = Slicer(soon.append, now=iter(range(1000)).__next__)
    client = harness.client()
    client.send(CreateTopicsRequest(), 7)
    client.connection.drop_lost_client()
    while soon:
        soon.pop(0)()
    assert "a mistake of mine" in caplog.text


def test_a_rerun_handler_starts_without_the_waits_that_its_first_run_requested(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    promises: list[Promise[MetadataResponse]] = []
    left: list[object] = []

    async def handler(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        left.append(context.waits)
        context.delay_answer_until_metadata_is_synced()
        promises.append(Promise())
        return await promises[-1]

    monkeypatch.setattr(SERVED[ApiKey.METADATA], "handler", handler)
    client = harness.client()
    client.send(MetadataRequest(), 12)
    client.connection.rerun_delayed_request()
    assert left == [None] * 2
