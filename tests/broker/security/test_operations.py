"""Which rights the handlers ask for: those of Kafka's table, and what comes of it if the client does not have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.control.token_changes import issue_token
from minibroker.broker.groups.share.share_group import ShareGroup
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import SERVED
from minibroker.broker.security.operations import DENIALS, REQUIRED, Right
from minibroker.broker.security.principals import Principal
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.declare import Struct
from minibroker.protocol.messages import (
    groups,
)
from tests.broker.harness import Harness, Waiting
from tests.broker.security.requests_of_apis import (
    GROUP,
    ID,
    LEAVES_OUT,
    REQUESTS,
    TOPIC,
    add_partitions_request,
    commit_request,
    streams_heartbeat_request,
)


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    """A cluster with delegation tokens."""
    with Harness(tmp_path, settings={"delegation.token.secret.key": "a key"}) as opened:
        yield opened


class Authorizer:
    """Allows nothing but what is in `rights`, and remembers what it was `asked` for."""

    def __init__(self, patch: pytest.MonkeyPatch, rights: set[Right]) -> None:
        self.asked: list[tuple[Right, str]] = []
        self.rights = rights
        patch.setattr(RequestContext, "allows", lambda _, right, name="kafka-cluster", **__: self._allows(right, name))
        patch.setattr(RequestContext, "allows_on_any_resource", lambda _, right: self._allows(right, "any"))
        patch.setattr(RequestContext, "get_allowed_operations", lambda *_: 0)

    def _allows(self, right: Right, name: str) -> bool:
        self.asked.append((right, name))
        return right in self.rights


def _prepared(harness: Harness) -> Harness:
    """A topic with a record, a group of each type with an offset, a transaction, and a token of somebody else."""
    issue_token(harness.cluster, Principal("User", "carol"), Principal("User", "carol"), (), -1)
    harness.create_topic(TOPIC)
    harness.produce(TOPIC, "v")
    for kind, key in ((0, GROUP), (1, ID)):
        harness.request(groups.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
    harness.request(commit_request(), 9)
    harness.request(REQUESTS[ApiKey.CONSUMER_GROUP_HEARTBEAT][0][0])
    harness.request(REQUESTS[ApiKey.SHARE_GROUP_HEARTBEAT][0][0])
    harness.request(streams_heartbeat_request("streams"))
    harness.cluster.groups.groups["empty"] = ShareGroup(harness.cluster.groups, "empty")
    given = harness.request(REQUESTS[ApiKey.INIT_PRODUCER_ID][0][0])
    request = add_partitions_request(3)
    request.v3_and_below_producer_id, request.v3_and_below_producer_epoch = given.producer_id, given.producer_epoch
    harness.request(request, 3)
    return harness


def error_codes(answer: Any) -> Iterator[int]:
    """All error codes in an answer."""
    if isinstance(answer, list):
        for each in answer:
            yield from error_codes(each)
    elif isinstance(answer, Struct):
        for name in answer.__fields__:
            value = getattr(answer, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from error_codes(value)


def _asked(harness: Harness, key: ApiKey) -> list[Any]:
    answers = [
        harness.request(request(harness) if callable(request) else request, version, user="alice")
        for request, version in REQUESTS[key]
    ]
    return [None if isinstance(answer, Waiting) else answer for answer in answers]


def test_each_served_api_is_in_the_table_of_required_permissions(harness: Harness) -> None:
    assert set(SERVED) == set(REQUIRED) == set(REQUESTS)


@pytest.mark.parametrize("key", REQUIRED, ids=lambda key: key.name)
def test_a_handler_checks_the_permissions_of_its_api(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, key: ApiKey
) -> None:
    _prepared(harness)
    required, asked = set(REQUIRED[key]), set()
    for rights in (set[Right](), *(required - {missing} for missing in REQUIRED[key]), required):
        authorizer = Authorizer(monkeypatch, rights)
        _asked(harness, key)
        asked |= {right for right, _ in authorizer.asked}
    assert asked == required


@pytest.mark.parametrize("key", [key for key in REQUIRED if REQUIRED[key]], ids=lambda key: key.name)
def test_requests_without_permissions_are_denied_and_change_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, key: ApiKey
) -> None:
    _prepared(harness)
    Authorizer(monkeypatch, set())
    before = harness.cluster.commits, [each.log_end_offset for each in _logs(harness)]
    answers = _asked(harness, key)
    for answer in answers:
        assert answer is not None
        assert key in LEAVES_OUT or set(error_codes(answer)) & set(DENIALS.values())
    assert (harness.cluster.commits, [each.log_end_offset for each in _logs(harness)]) == before


def _logs(harness: Harness) -> list[Any]:
    return [each.log for topic in harness.cluster.image.topics.values() for each in topic.partitions]
