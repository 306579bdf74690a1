"""DescribeAcls, CreateAcls and DeleteAcls: who may do what, of which there is nothing without an authorizer.

Behaviour: as by a Kafka without `authorizer.class.name`, every question is answered with SECURITY_DISABLED. A filter or
an ACL with a part that is unknown closes the connection, as it does there.

Versions: 1 brought pattern types, 2 flexible fields, 3 the resource type for users.

Not implemented: an authorizer.
"""

from __future__ import annotations

from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.dispatch import Unanswerable
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import ALTER_CLUSTER, DESCRIBE_CLUSTER
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
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


@handles(ApiKey.DESCRIBE_ACLS)
def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    _check_known(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    context.authorize(DESCRIBE_CLUSTER)
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")


@handles(ApiKey.CREATE_ACLS)
def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for wanted in request.creations:
        _check_known(wanted.resource_type, wanted.resource_pattern_type, wanted.operation, wanted.permission_type)
    error, shape = _refusal(context), CreateAclsResponse.AclCreationResult
    refused = [shape(error_code=error.code, error_message=error.message) for _ in request.creations]
    return CreateAclsResponse(results=refused)


@handles(ApiKey.DELETE_ACLS)
def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    for wanted in request.filters:
        _check_known(wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type)
    error, shape = _refusal(context), DeleteAclsResponse.DeleteAclsFilterResult
    refused = [shape(error_code=error.code, error_message=error.message) for _ in request.filters]
    return DeleteAclsResponse(filter_results=refused)


def _refusal(context: RequestContext) -> KafkaError:
    try:
        context.authorize(ALTER_CLUSTER)
    except KafkaError as error:
        return error
    return KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


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
