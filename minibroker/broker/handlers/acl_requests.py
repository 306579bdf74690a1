"""DescribeAcls, CreateAcls and DeleteAcls: access rules (KIP-140).

Behaviour: ACLs are records of the metadata log, each with a random id. An ACL that is created twice exists once. A
request creates or deletes all of its ACLs in one commit; a request for more than 10,000 changes nothing. Without
`authorizer.class.name` every request is answered with SECURITY_DISABLED. A type of 0 (UNKNOWN) closes the connection,
as in Kafka. A host may be a range such as 10.0.0.0/8, which Kafka accepts from 4.4 on.

Versions: 1 brought pattern types, 2 flexible fields, 3 the resource type for users.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TypeVar

from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.routes import UnanswerableRequest
from minibroker.broker.requests.served import handles
from minibroker.broker.security.acls import Acl, AclFilter, check_new_acl
from minibroker.broker.security.operations import ALTER_CLUSTER, DESCRIBE_CLUSTER, make_denial_text
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import RemoveAccessControlEntryRecord
from minibroker.protocol.messages.security import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from minibroker.protocol.steps import WAITING, Steps, apply_to_items_in_steps, split_into_portions

UNKNOWN = 0  # in each enumeration: resource types, pattern types, operations and permission types
MAX_CHANGES = 10_000  # in one request, as in Kafka
MAX_MATCHES = 100_000  # in one answer; an ACL that matches several filters counts several times

CreatedAcl = CreateAclsResponse.AclCreationResult
DeletedAcls = DeleteAclsResponse.DeleteAclsFilterResult
DescribedAcls = DescribeAclsResponse.DescribeAclsResource
AnyFilter = DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter
Result = TypeVar("Result", CreatedAcl, DeletedAcls)
Results = Steps[list[Result]]


@handles(ApiKey.DESCRIBE_ACLS)
async def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = _parse_acl_filter(request)
    context.authorize(DESCRIBE_CLUSTER, message=make_denial_text(ApiKey.DESCRIBE_ACLS, DESCRIBE_CLUSTER))
    if context.cluster.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    resources: dict[tuple[int, str, int], DescribedAcls] = {}
    for _, acl in await run_in_slices(_find_matching_acls(context, wanted)):
        pattern = acl.resource_type, acl.name, acl.pattern_type
        if pattern not in resources:
            resource_type, name, pattern_type = pattern
            resources[pattern] = DescribedAcls(
                resource_type=resource_type, resource_name=name, pattern_type=pattern_type
            )
        entry = DescribedAcls.AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        resources[pattern].acls.append(entry)
        await pause()
    return DescribeAclsResponse(resources=list(resources.values()))


@handles(ApiKey.CREATE_ACLS, durable=True)
async def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    for creation in request.creations:
        _check_enum_values_known(
            creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type
        )
        await pause()
    change = _create_valid_acls(context, request.creations)
    return CreateAclsResponse(
        results=(
            await run_in_slices(_run_acl_change_after_earlier_ones(context, change, CreatedAcl, len(request.creations)))
        )
    )


def _run_acl_change_after_earlier_ones(
    context: RequestContext, change: Results[Result], result_type: type[Result], requested_count: int
) -> Results[Result]:
    """Run a change of ACLs after those that began before it; if it raises, return its error as each result.

    Requests in between see a part of the change. So rules that deny are added first and removed last: what the whole
    change denies is never allowed in between.
    """
    acls = context.cluster.image.acls
    try:
        key = ApiKey.CREATE_ACLS if result_type is CreatedAcl else ApiKey.DELETE_ACLS
        context.authorize(ALTER_CLUSTER, message=make_denial_text(key, ALTER_CLUSTER))
        if context.cluster.authorizer is None:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        while acls.is_changing:
            yield WAITING
        acls.is_changing = True
        try:
            return (yield from change)
        finally:
            acls.is_changing = False
    except KafkaError as error:
        refused = error
    return (
        yield from apply_to_items_in_steps(lambda _: _make_error_result(result_type, refused), range(requested_count))
    )


def _create_valid_acls(
    context: RequestContext, creations: list[CreateAclsRequest.AclCreation]
) -> Steps[list[CreatedAcl]]:
    """Commit all valid ACLs that do not exist yet. Raises KafkaError(POLICY_VIOLATION) if there are too many."""
    results: list[CreatedAcl] = []
    wanted: dict[Acl, None] = {}
    for creation in creations:
        acl = Acl(
            creation.resource_type,
            creation.resource_name,
            creation.resource_pattern_type,
            creation.principal,
            creation.host,
            creation.operation,
            creation.permission_type,
        )
        try:
            check_new_acl(acl)
            wanted[acl] = None
            results.append(CreatedAcl())
        except KafkaError as error:
            results.append(_make_error_result(CreatedAcl, error))
        yield
    if len(wanted) > MAX_CHANGES:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
    known = context.cluster.image.acls.ids
    new = [acl for acl in sorted(wanted, key=attrgetter("permission")) if acl not in known]
    records = yield from apply_to_items_in_steps(lambda acl: acl.make_acl_record(context.cluster.make_uuid()), new)
    yield from context.cluster.commit_metadata_records_in_steps(records)
    return results


@handles(ApiKey.DELETE_ACLS, durable=True)
async def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    wanted = await run_in_slices(apply_to_items_in_steps(_parse_acl_filter, request.filters))
    change = _delete_matching_acls(context, wanted)
    return DeleteAclsResponse(
        filter_results=(
            await run_in_slices(_run_acl_change_after_earlier_ones(context, change, DeletedAcls, len(wanted)))
        )
    )


def _delete_matching_acls(context: RequestContext, acl_filters: list[AclFilter]) -> Steps[list[DeletedAcls]]:
    """Delete the ACLs that match. The result of each filter lists all that match it.

    Raises KafkaError(INVALID_REQUEST) if there are too many.
    """
    acls_by_id: dict[bytes, Acl] = {}
    results: list[DeletedAcls] = []
    count = 0
    for each_filter in acl_filters:
        try:
            each_filter.check_types_known()
        except KafkaError as error:
            results.append(_make_error_result(DeletedAcls, error))
            continue
        result = DeletedAcls(error_message=None)
        for id, acl in (yield from _find_matching_acls(context, each_filter)):
            acls_by_id[id] = acl
            count += 1
            if len(acls_by_id) > MAX_CHANGES or count > MAX_MATCHES:
                message = f"Cannot remove more than {MAX_CHANGES} acls in a single delete operation."
                raise KafkaError(ErrorCode.INVALID_REQUEST, message)
            result.matching_acls.append(_encode_matching_acl(acl))
            yield
        results.append(result)
    ordered = sorted(acls_by_id, key=lambda id: -acls_by_id[id].permission)
    records = yield from apply_to_items_in_steps(lambda id: RemoveAccessControlEntryRecord(id=id), ordered)
    yield from context.cluster.commit_metadata_records_in_steps(records)
    return results


def _encode_matching_acl(acl: Acl) -> DeletedAcls.DeleteAclsMatchingAcl:
    return DeletedAcls.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _make_error_result(result_type: type[Result], error: KafkaError) -> Result:
    return result_type(error_code=error.code, error_message=error.message)


def _find_matching_acls(context: RequestContext, acl_filter: AclFilter) -> Steps[list[tuple[bytes, Acl]]]:
    """Return (id, ACL) of each ACL that passes the filter."""
    found = []
    for portion in split_into_portions(list(context.cluster.image.acls.by_id.items())):
        found += [(id, acl) for id, acl in portion if acl_filter.matches_acl(acl)]
        yield
    return found


def _parse_acl_filter(requested: AnyFilter) -> AclFilter:
    """Return the filter of a request. Raises UnanswerableRequest if one of its types is UNKNOWN."""
    _check_enum_values_known(
        requested.resource_type_filter, requested.pattern_type_filter, requested.operation, requested.permission_type
    )
    return AclFilter(
        requested.resource_type_filter,
        requested.resource_name_filter,
        requested.pattern_type_filter,
        requested.principal_filter,
        requested.host_filter,
        requested.operation,
        requested.permission_type,
    )


def _check_enum_values_known(*values: int) -> None:
    """Raise UnanswerableRequest if one of the types is UNKNOWN."""
    if UNKNOWN in values:
        raise UnanswerableRequest("a request about ACLs with an UNKNOWN type")
