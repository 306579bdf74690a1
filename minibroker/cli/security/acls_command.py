"""`minibroker acls`: list, add and remove ACLs (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.broker.security.acls import PatternType, Permission
from minibroker.broker.security.operations import CLUSTER_NAME, Operation, ResourceType, format_user_resource
from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_operation_error,
    print_rows_or_json,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

OPERATIONS: Final = {each.name.lower().replace("_", "-"): each for each in Operation if each is not Operation.ANY}
Command = Callable[..., Any]


class ListedAcl(NamedTuple):
    """An ACL, with Kafka's names in lower case."""

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str


@click.group(cls=WholeHelpGroup)
def acls() -> None:
    """List, add and remove ACLs of a cluster with an authorizer.

    \b
    Example:
        minibroker acls add alice read --topic orders
    """


def _add_acl_options(command: Command) -> Command:
    """Add what names an ACL and a cluster: arguments, `--topic` and its like, and the options of clients."""
    options: list[Callable[[Command], Command]] = [
        click.argument("user"),
        click.argument("operation", type=click.Choice(list(OPERATIONS))),
        click.option("--topic", help="The topic; * for all.", shell_complete=make_names_completer("topics")),
        click.option("--group", help="The group.", shell_complete=make_names_completer("groups")),
        click.option("--transactional-id", help="The transactional id."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--delegation-token", help="The delegation token, by its id."),
        click.option("--user-principal", help="The user whose delegation tokens are created or described."),
        click.option("--prefixed", is_flag=True, help="The name is a prefix."),
        click.option("--host", default="*", show_default=True, help="The client's address, or a range of them."),
        click.option("--deny", is_flag=True, help="Deny it, instead of allowing it."),
        add_connection_options,
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _parse_resource_type_and_name(options: dict[str, Any]) -> tuple[int, str]:
    """Return the type and name of the resource that the options name. Raises click.UsageError."""
    kinds = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional_id": ResourceType.TRANSACTIONAL_ID,
        "delegation_token": ResourceType.DELEGATION_TOKEN,
    }
    named = [(kind, options[option]) for option, kind in kinds.items() if options[option] is not None]
    if options["cluster"]:
        named.append((ResourceType.CLUSTER, CLUSTER_NAME))
    if options["user_principal"] is not None:
        named.append((ResourceType.USER, format_user_resource(options["user_principal"])))
    if len(named) != 1:
        raise click.UsageError(
            "choose one of --topic, --group, --transactional-id, --cluster, --delegation-token, --user-principal"
        )
    return named[0]


def _make_acl_fields(user: str, operation: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return an ACL as the fields of a request, but for the type of its pattern."""
    resource_type, name = _parse_resource_type_and_name(options)
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "principal": user if ":" in user else f"User:{user}",
        "host": options["host"],
        "operation": OPERATIONS[operation],
        "permission_type": Permission.DENY if options["deny"] else Permission.ALLOW,
    }


def _choose_pattern_type(options: dict[str, Any]) -> PatternType:
    return PatternType.PREFIXED if options["prefixed"] else PatternType.LITERAL


@acls.command("list")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_acls(bootstrap: Bootstrap, as_json: bool) -> None:
    """List all ACLs.

    \b
    Example:
        minibroker acls list
    """
    with connect_client(bootstrap) as client:
        rows = list_acls_of_cluster(client)
    print_rows_or_json([row._asdict() for row in rows], ListedAcl._fields, as_json)


def list_acls_of_cluster(client: Client) -> list[ListedAcl]:
    """Return all ACLs. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.security import DescribeAclsRequest

    everything = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=None,
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    answer = client.request(everything)
    check_error_code(answer.error_code, "cannot list ACLs", answer.error_message)
    return sorted(
        ListedAcl(
            ResourceType(resource.resource_type).name.lower(),
            resource.resource_name,
            PatternType(resource.pattern_type).name.lower(),
            acl.principal,
            acl.host,
            Operation(acl.operation).name.lower(),
            Permission(acl.permission_type).name.lower(),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


@acls.command()
@_add_acl_options
def add(user: str, operation: str, bootstrap: Bootstrap, **options: Any) -> None:
    """Allow a user (* for everybody) an operation on a resource, or deny it.

    \b
    Example:
        minibroker acls add alice read --topic orders- --prefixed
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.security import CreateAclsRequest

    topic = options["topic"] or "*"
    if topic != "*" and topic.endswith("*"):  # no topic has such a name
        raise click.UsageError(f"no topic is named {topic}; for a prefix, give --topic {topic.rstrip('*')} --prefixed")
    creation = CreateAclsRequest.AclCreation(
        **_make_acl_fields(user, operation, options), resource_pattern_type=_choose_pattern_type(options)
    )
    with connect_client(bootstrap) as client:
        (result,) = client.request(CreateAclsRequest(creations=[creation]), client.fetch_controller_id()).results
        check_error_code(result.error_code, "cannot add the ACL", result.error_message)
    click.echo(f"{'denied' if options['deny'] else 'allowed'} {user} to {operation}")


@acls.command()
@_add_acl_options
def remove(user: str, operation: str, bootstrap: Bootstrap, **options: Any) -> None:
    """Remove an ACL, named as it was added.

    \b
    Example:
        minibroker acls remove alice read --topic orders- --prefixed
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.security import DeleteAclsRequest

    parts = _make_acl_fields(user, operation, options)
    wanted = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=parts["resource_type"],
        resource_name_filter=parts["resource_name"],
        pattern_type_filter=_choose_pattern_type(options),
        principal_filter=parts["principal"],
        host_filter=parts["host"],
        operation=parts["operation"],
        permission_type=parts["permission_type"],
    )
    with connect_client(bootstrap) as client:
        (result,) = client.request(DeleteAclsRequest(filters=[wanted]), client.fetch_controller_id()).filter_results
        check_error_code(result.error_code, "cannot remove the ACL", result.error_message)
    if not result.matching_acls:
        raise make_operation_error("there is no such ACL; 'minibroker acls list' shows those that there are")
    click.echo(f"removed {len(result.matching_acls)}")
