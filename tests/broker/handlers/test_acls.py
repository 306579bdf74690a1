"""DescribeAcls, CreateAcls and DeleteAcls: without an authorizer there is nothing to say."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.requests.routes import Unanswerable
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.broker.harness import Harness, served_versions

DISABLED = ErrorCode.SECURITY_DISABLED
ANY = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}


@pytest.mark.parametrize("version", served_versions(DescribeAclsRequest))
def test_nobody_may_or_may_not_do_anything(harness: Harness, version: int) -> None:
    answer = harness.request(DescribeAclsRequest(**ANY), version)
    assert (answer.error_code, answer.resources) == (DISABLED, [])
    assert answer.error_message == "No Authorizer is configured on the broker"


@pytest.mark.parametrize("version", served_versions(CreateAclsRequest))
def test_each_acl_is_refused(harness: Harness, version: int) -> None:
    acl = CreateAclsRequest.AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*")
    acl.operation, acl.permission_type = 3, 3
    results = harness.request(CreateAclsRequest(creations=[acl, acl]), version).results
    assert [(one.error_code, one.error_message) for one in results] == [(DISABLED, "No Authorizer is configured.")] * 2


@pytest.mark.parametrize("version", served_versions(DeleteAclsRequest))
def test_each_filter_is_refused(harness: Harness, version: int) -> None:
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**ANY)])
    (result,) = harness.request(request, version).filter_results
    assert (result.error_code, result.matching_acls) == (DISABLED, [])


@pytest.mark.parametrize(
    "request_",
    [
        DescribeAclsRequest(**{**ANY, "operation": 0}),
        DescribeAclsRequest(**{**ANY, "permission_type": 9}),
        CreateAclsRequest(creations=[CreateAclsRequest.AclCreation()]),
        DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**{**ANY, "resource_type_filter": 99})]),
    ],
)
def test_an_unknown_type_ends_the_connection(harness: Harness, request_: Any) -> None:
    with pytest.raises(Unanswerable):
        harness.request(request_)
