"""`minibroker groups`: list and delete groups of any Kafka, of all types.

`groups_describe` shows a group and its offsets, `groups_reset` and `groups_delete_offsets` change the offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connect_client, delete_each_by_name
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_delete_offsets import delete_offsets
from minibroker.cli.groups.groups_describe import describe
from minibroker.cli.groups.groups_facts import list_group_names, send_request_to_group_coordinator
from minibroker.cli.groups.groups_reset import reset_offsets
from minibroker.cli.groups.groups_types import TYPES
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
    print_help_if_alone,
    print_table,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

STATES: Final = (
    "Stable",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)


@click.group(cls=WholeHelpGroup, invoke_without_command=True)
@click.pass_context
def groups(context: click.Context) -> None:
    """List, describe, reset and delete groups.

    \b
    Example:
        minibroker groups describe billing
    """
    print_help_if_alone(context)


@groups.command("list")
@click.option("--state", "states", type=click.Choice(STATES, False), multiple=True, help="Only groups in this state.")
@click.option("--type", "types", type=click.Choice(TYPES, False), multiple=True, help="Only groups of this type.")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """List groups: those of consumers (classic and consumer), share groups, streams groups, and others.

    \b
    Example:
        minibroker groups list --state Empty --json
    """
    from minibroker.client.client_errors import ClientError

    rows, problems = [], []
    with connect_client(bootstrap) as client:
        for node in client.nodes():
            try:
                rows += list_groups_of_node(client, node, states, types)
            except ClientError as error:
                problems.append(str(error))
    rows.sort(key=lambda row: row["group"])
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["group", "type", "protocol", "state"], [list(row.values()) for row in rows])
    if problems:
        raise make_operation_error(f"not all groups are listed: {'; '.join(problems)}")


def list_groups_of_node(
    client: Client, node: int, states: tuple[str, ...] = (), types: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Return the groups that a node coordinates. Old brokers know no states, and only classic groups."""
    from minibroker.protocol.messages.groups import ListGroupsRequest

    def request_groups() -> Any:
        answer = client.request(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), node)
        client.check(answer.error_code, "listing groups", node)
        return answer

    rows = [
        {
            "group": each.group_id,
            "type": (each.group_type or "classic").lower(),
            "protocol": each.protocol_type,
            "state": each.group_state or "Unknown",
        }
        for each in client.retry(request_groups).groups
    ]
    return [row for row in rows if not types or row["type"] in types]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...", shell_complete=make_names_completer("groups"))
@add_connection_options
@make_json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets, without confirmation.

    \b
    Example:
        minibroker groups delete billing
    """
    with connect_client(bootstrap) as client:
        delete_each_by_name(names, lambda name: _delete_group(client, name), as_json)


def _delete_group(client: Client, name: str) -> None:
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.groups import DeleteGroupsRequest

    (answer,) = send_request_to_group_coordinator(client, name, DeleteGroupsRequest(groups_names=[name])).results
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise make_not_found_error("group", name, list_group_names(client))
    check_error_code(answer.error_code, f"cannot delete {name}")


groups.add_command(describe)
groups.add_command(reset_offsets)
groups.add_command(delete_offsets)
