"""DescribeAcls, CreateAcls and DeleteAcls: who may do what, of which there is nothing without an authorizer.

Behaviour: as by a Kafka without `authorizer.class.name`, every question is answered with SECURITY_DISABLED. A filter or
an ACL with a part that is unknown closes the connection, as it does there.

Versions: 1 brought pattern types, 2 flexible fields, 3 the resource type for users.

Not implemented: an authorizer.
"""

from __future__ import annotations

from minibroker.broker.requests.dispatch import Context, Unanswerable, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

UNKNOWN = 0
RESOURCE_TYPES = range(1, 8)  # ANY to USER
PATTERN_TYPES = range(1, 5)  # ANY to PREFIXED
OPERATIONS = range(1, 16)  # ANY to TWO_PHASE_COMMIT
PERMISSION_TYPES = range(1, 4)  # ANY to ALLOW


@handles(ApiKey.DESCRIBE_ACLS, "0-3")
def describe_acls(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    _check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    message = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=message)


@handles(ApiKey.CREATE_ACLS, "0-3")
def create_acls(context: Context, request: CreateAclsRequest) -> CreateAclsResponse:
    for wanted in request.creations:
        _check_known(wanted.resource_type, wanted.resource_pattern_type, wanted.operation, wanted.permission_type)
    shape, message = CreateAclsResponse.AclCreationResult, "No Authorizer is configured."
    disabled = [shape(error_code=ErrorCode.SECURITY_DISABLED, error_message=message) for _ in request.creations]
    return CreateAclsResponse(results=disabled)


@handles(ApiKey.DELETE_ACLS, "0-3")
def delete_acls(context: Context, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for wanted in request.filters:
        _check_known(wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)
    shape, message = DeleteAclsResponse.DeleteAclsFilterResult, "No Authorizer is configured."
    disabled = [shape(error_code=ErrorCode.SECURITY_DISABLED, error_message=message) for _ in request.filters]
    return DeleteAclsResponse(filter_results=disabled)


def _check_known(resource_type: int, pattern_type: int, operation: int, permission_type: int) -> None:
    """Raises Unanswerable."""
    known = (
        resource_type in RESOURCE_TYPES
        and pattern_type in PATTERN_TYPES
        and operation in OPERATIONS
        and permission_type in PERMISSION_TYPES
    )
    if not known:
        raise Unanswerable("a request about ACLs with a type that is unknown")
