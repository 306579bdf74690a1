"""The lines of the audit log: a denial of what a request needs, and permissions at DEBUG."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.security.operations import DESCRIBE_TOPIC, REQUIRED, WRITE_TOPIC
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from tests.broker.harness import AUTHORIZED, Harness, batch
from tests.broker.security.requests_of_apis import LEAVES_OUT, REQUESTS


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A topic that alice may describe."""
    with Harness(tmp_path, settings=AUTHORIZED) as made:
        made.create_topic("orders", user="admin")
        made.add_acl(DESCRIBE_TOPIC, "orders")
        yield made


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and text of each line of the audit log."""
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "minibroker.authorizer"]


def test_a_denial_is_logged_with_principal_host_operation_and_resource(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "minibroker.authorizer"):
        answer = harness.request(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5, user="alice")
    assert answer.responses[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert lines(caplog) == [("INFO", "User:alice from 127.0.0.1 is denied DELETE on TOPIC orders")]
    (record,) = (each for each in caplog.records if each.name == "minibroker.authorizer")
    told = vars(record)
    assert (told["principal"], told["host"], told["operation"]) == ("User:alice", "127.0.0.1", "DELETE")
    assert (told["resource_type"], told["resource"], told["allowed"]) == ("TOPIC", "orders", False)


def test_allowed_operations_are_logged_at_debug_level(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    harness.add_acl(WRITE_TOPIC, "orders")
    with caplog.at_level(logging.DEBUG, "minibroker.authorizer"):
        harness.produce_batch("orders", batch("v"), user="alice")
    assert ("DEBUG", "User:alice from 127.0.0.1 is allowed WRITE on TOPIC orders") in lines(caplog)


def test_resources_omitted_from_a_list_are_not_logged(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "minibroker.authorizer"):
        request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        assert harness.request(request, user="bob").topics == []
    assert lines(caplog) == []


@pytest.mark.parametrize(
    "key", [key for key in REQUIRED if REQUIRED[key] and key not in LEAVES_OUT], ids=lambda key: key.name
)
def test_every_denied_request_is_logged(harness: Harness, caplog: pytest.LogCaptureFixture, key: ApiKey) -> None:
    with caplog.at_level(logging.INFO, "minibroker.authorizer"):
        for request, version in REQUESTS[key]:
            harness.request(request(harness) if callable(request) else request, version, user="bob")
    assert any(" is denied " in text for _, text in lines(caplog))
