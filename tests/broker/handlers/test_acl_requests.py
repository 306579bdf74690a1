"""DescribeAcls, CreateAcls and DeleteAcls, beyond what `conformance/wire` asks: restarts, many at once, their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.broker.handlers import acl_requests as handlers
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from minibroker.protocol.steps import WAITING, apply_to_items_in_steps, run_all_steps
from tests.broker.harness import AUTHORIZED, Harness, served_versions

ANY = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(**{**ANY, "operation": 0}),
        DescribeAclsRequest(**{**ANY, "permission_type": 0}),
        CreateAclsRequest(creations=[CreateAclsRequest.AclCreation()]),
        DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**{**ANY, "resource_type_filter": 0})]),
    ],
)
def test_an_unknown_acl_type_closes_the_connection(harness: Harness, request_: Any) -> None:
    with pytest.raises(UnanswerableRequest):
        harness.request(request_)


# --- with an authorizer -------------------------------------------------------------------------

Creation, Filter = CreateAclsRequest.AclCreation, DeleteAclsRequest.DeleteAclsFilter
TOPIC, GROUP = 2, 3
LITERAL, PREFIXED = 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3


@pytest.fixture
def authorized(tmp_path: Path) -> Iterator[Harness]:
    with Harness(tmp_path, settings=AUTHORIZED) as made:
        yield made


def creation(name: str = "t", **more: Any) -> Creation:
    fields = {
        "resource_type": TOPIC,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return Creation(resource_name=name, **{**fields, **more})


def create(harness: Harness, *creations: Creation, version: int | None = None) -> list[tuple[int, str | None]]:
    answer = harness.request(CreateAclsRequest(creations=list(creations)), version, user="admin")
    return [(one.error_code, one.error_message) for one in answer.results]


def names(harness: Harness, version: int | None = None, **wanted: Any) -> list[str]:
    """The names of the patterns with an ACL that matches, once for each ACL, in order."""
    fields = {**ANY, "pattern_type_filter": 1, **wanted}
    answer = harness.request(DescribeAclsRequest(**fields), version, user="admin")
    assert answer.error_code == ErrorCode.NONE
    return sorted(one.resource_name for one in answer.resources for _ in one.acls)


def delete(harness: Harness, *filters: dict[str, Any], version: int | None = None) -> list[Any]:
    wanted = [Filter(**{**ANY, "pattern_type_filter": 1, **each}) for each in filters]
    answer = harness.request(DeleteAclsRequest(filters=wanted), version, user="admin")
    return [(one.error_code, sorted(acl.resource_name for acl in one.matching_acls)) for one in answer.filter_results]


@pytest.mark.parametrize("version", served_versions(CreateAclsRequest))
def test_an_acl_is_stored_once_and_survives_a_crash(authorized: Harness, version: int) -> None:
    assert create(authorized, creation(), creation(), version=version) == [(0, "")] * 2
    assert create(authorized, creation(), version=version) == [(0, "")]
    authorized.restart(crash=True)
    answer = authorized.request(DescribeAclsRequest(**ANY), version, user="admin")
    ((resource,),) = [answer.resources]
    (acl,) = resource.acls
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (TOPIC, "t", LITERAL)
    assert (acl.principal, acl.host, acl.operation, acl.permission_type) == ("User:alice", "*", READ, ALLOW)


def test_a_deleted_acl_stays_deleted_after_a_crash(authorized: Harness) -> None:
    create(authorized, creation("a"), creation("b"))
    assert delete(authorized, {"resource_name_filter": "a"}) == [(0, ["a"])]
    authorized.restart(crash=True)
    assert names(authorized) == ["b"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["t", "t", "te", "*", "g"]),
        ({"resource_type_filter": TOPIC}, ["t", "t", "te", "*"]),
        ({"resource_name_filter": "t"}, ["t", "t"]),
        ({"resource_name_filter": "t", "pattern_type_filter": LITERAL}, ["t", "t"]),
        ({"resource_name_filter": "t", "pattern_type_filter": PREFIXED}, []),
        ({"pattern_type_filter": PREFIXED}, ["te"]),
        ({"resource_name_filter": "test", "pattern_type_filter": 2}, ["te", "*"]),
        ({"resource_name_filter": "t", "pattern_type_filter": 2}, ["t", "t", "*"]),
        ({"pattern_type_filter": 2}, ["t", "t", "te", "*", "g"]),
        ({"principal_filter": "User:bob"}, ["g"]),
        ({"host_filter": "10.0.0.1"}, ["te"]),
        ({"operation": WRITE}, ["t"]),
        ({"permission_type": DENY}, ["*"]),
        ({"operation": WRITE, "permission_type": DENY}, []),
    ],
)
def test_a_filter_finds_the_matching_acls(authorized: Harness, wanted: dict[str, Any], found: list[str]) -> None:
    create(
        authorized,
        creation("t"),
        creation("t", operation=WRITE),
        creation("te", resource_pattern_type=PREFIXED, host="10.0.0.1"),
        creation("*", permission_type=DENY),
        creation("g", resource_type=GROUP, principal="User:bob"),
    )
    assert names(authorized, **wanted) == sorted(found)
    assert delete(authorized, wanted) == [(0, sorted(found))]
    assert len(names(authorized)) == 5 - len(found)


def test_overlapping_delete_filters_each_list_their_matches(authorized: Harness) -> None:
    create(authorized, creation("a"))
    assert delete(authorized, {}, {"resource_name_filter": "a"}, {"resource_name_filter": "b"}) == [
        (0, ["a"]),
        (0, ["a"]),
        (0, []),
    ]


def test_an_invalid_delete_filter_does_not_affect_the_next_one(authorized: Harness) -> None:
    create(authorized, creation("a"))
    assert delete(authorized, {"operation": 99}, {"resource_name_filter": "a"}) == [
        (ErrorCode.INVALID_REQUEST, []),
        (0, ["a"]),
    ]


def test_too_many_acl_changes_in_a_request_are_all_rejected(
    authorized: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(authorized, creation("a"), creation("b"), creation("c"))
    monkeypatch.setattr(handlers, "MAX_CHANGES", 2)
    message = "Unable to perform excessively large batch operation."
    wanted = [creation(name) for name in "xyz"]
    assert create(authorized, *wanted) == [(ErrorCode.POLICY_VIOLATION, message)] * 3
    assert delete(authorized, {"resource_name_filter": "a"}, {}) == [(ErrorCode.INVALID_REQUEST, [])] * 2
    assert names(authorized) == ["a", "b", "c"]


def test_a_thousand_acls_are_created_and_deleted(authorized: Harness) -> None:
    create(authorized, *(creation(f"t{number}") for number in range(1000)))
    assert len(names(authorized)) == 1000
    ((code, gone),) = delete(authorized, {})
    assert (code, len(gone), names(authorized)) == (0, 1000, [])


def test_acl_changes_are_applied_one_after_the_other(authorized: Harness) -> None:
    acls = authorized.cluster.image.acls
    acls.is_changing = True
    context: Any = SimpleNamespace(cluster=authorized.cluster, authorize=lambda *_, **__: None)
    steps: Any = handlers._run_acl_change_after_earlier_ones(
        context, apply_to_items_in_steps(str, [1]), handlers.CreatedAcl, 1
    )  # type: ignore[arg-type]
    assert [next(steps), next(steps)] == [WAITING, WAITING]
    acls.is_changing = False
    assert next(steps) is None and acls.is_changing
    assert run_all_steps(steps) == ["1"]
    assert create(authorized, creation()) == [(0, "")]
    with pytest.raises(RuntimeError, match="no room"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(authorized.cluster.metadata_log, "append_batch", _no_room)
        delete(authorized, {})
    assert not acls.is_changing
    assert (names(authorized), delete(authorized, {})) == (["t"], [(0, ["t"])])


def _no_room(batch: memoryview) -> None:
    raise RuntimeError("no room")


def test_deny_acls_are_created_first_and_deleted_last(authorized: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    allowing, denying = creation(), creation(permission_type=DENY)
    image, seen = authorized.cluster.image, list[list[int]]()
    apply = image.apply_record

    def noting(record: Any) -> None:
        apply(record)
        seen.append(sorted(acl.permission for acl in image.acls.by_id.values()))

    monkeypatch.setattr(image, "apply_record", noting)
    create(authorized, allowing, denying)
    delete(authorized, {})
    assert seen == [[DENY], [DENY, ALLOW], [DENY], []]
