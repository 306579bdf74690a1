"""`minibroker groups`: list and delete consumer groups of any Kafka.

`groups_describe` shows a group and its offsets, and `groups_reset` resets the offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connected, delete_each
from minibroker.cli.connecting import Bootstrap, client_options
from minibroker.cli.groups.groups_describe import describe
from minibroker.cli.groups.groups_facts import ask_coordinator
from minibroker.cli.groups.groups_reset import reset_offsets
from minibroker.cli.shared import failure, help_if_alone, json_option, print_table

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

STATES: Final = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead")
TYPES: Final = ("classic", "consumer")
CONSUMERS: Final = ("consumer", "")  # types of protocol: of consumers, and of who only commits offsets


@click.group(invoke_without_command=True)
@click.pass_context
def groups(context: click.Context) -> None:
    """List, describe, reset and delete consumer groups.

    \b
    Example:
        minibroker groups describe billing
    """
    help_if_alone(context)


@groups.command("list")
@click.option("--state", "states", type=click.Choice(STATES, False), multiple=True, help="Only groups in it.")
@click.option("--type", "types", type=click.Choice(TYPES, False), multiple=True, help="Only groups of this protocol.")
@client_options
@json_option("Print a JSON array.")
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """List consumer groups, and groups that only commit offsets.

    \b
    Example:
        minibroker groups list --state Empty --json
    """
    from minibroker.client.client_errors import ClientError

    rows, problems = [], []
    with connected(bootstrap) as client:
        for node in client.nodes():
            try:
                rows += _listed(client, node, states, types)
            except ClientError as error:
                problems.append(str(error))
    rows.sort(key=lambda row: row["group"])
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["group", "type", "state"], [list(row.values()) for row in rows])
    if problems:
        raise failure(f"not all groups are listed: {'; '.join(problems)}")


def _listed(client: Client, node: int, states: tuple[str, ...], types: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the groups that a node coordinates. Old brokers know neither states nor types, and return all groups."""
    from minibroker.protocol.messages.groups import ListGroupsRequest

    def ask() -> Any:
        answer = client.request(ListGroupsRequest(states_filter=list(states), types_filter=list(types)), node)
        client.check(answer.error_code, "listing groups", node)
        return answer

    return [
        {"group": each.group_id, "type": each.group_type or "classic", "state": each.group_state or "Unknown"}
        for each in client.retry(ask).groups
        if each.protocol_type in CONSUMERS
    ]


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@client_options
@json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets, without confirmation.

    \b
    Example:
        minibroker groups delete billing
    """
    with connected(bootstrap) as client:
        delete_each(names, lambda name: _delete(client, name), as_json)


def _delete(client: Client, name: str) -> None:
    from minibroker.client.client_errors import check
    from minibroker.protocol.messages.groups import DeleteGroupsRequest

    (answer,) = ask_coordinator(client, name, DeleteGroupsRequest(groups_names=[name])).results
    check(answer.error_code, f"cannot delete {name}")


groups.add_command(describe)
groups.add_command(reset_offsets)
