"""`minibroker groups`: list and delete consumer groups of any Kafka, through confluent-kafka.

What a group is and how far it has come is shown by `groups_describe`, and set anew by `groups_reset`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click

from minibroker.cli.administration import admin_client, report_deleted, result
from minibroker.cli.groups_describe import describe
from minibroker.cli.groups_facts import state_name, type_name
from minibroker.cli.groups_reset import reset_offsets
from minibroker.cli.shared import (
    REQUEST_TIMEOUT_S,
    Bootstrap,
    client_options,
    failure,
    help_if_alone,
    json_option,
    print_table,
    reason,
)

if TYPE_CHECKING:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupType

STATES: Final = {  # as Kafka names them, and confluent-kafka
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
    "Dead": "DEAD",
}
TYPES: Final = ("classic", "consumer")


@click.group(invoke_without_command=True)
@click.pass_context
def groups(context: click.Context) -> None:
    """List, describe, set back and delete consumer groups.

    \b
    Example:
        minibroker groups describe billing
    """
    help_if_alone(context)


@groups.command("list")
@click.option("--state", "states", type=click.Choice(list(STATES), False), multiple=True, help="Only groups in it.")
@click.option("--type", "types", type=click.Choice(TYPES, False), multiple=True, help="Only groups of this protocol.")
@client_options
@json_option("Print a JSON array.")
def list_groups(
    states: tuple[str, ...],
    types: tuple[str, ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """List the groups of consumers, and those that only commit offsets.

    \b
    Example:
        minibroker groups list --state Empty --json
    """
    admin = admin_client(bootstrap)
    listed = result(
        admin.list_consumer_groups(states=_states(states), types=_types(types), request_timeout=REQUEST_TIMEOUT_S),
        "cannot list the groups",
    )
    rows = [
        {"group": group.group_id, "type": type_name(group.type), "state": state_name(group.state)}
        for group in sorted(listed.valid, key=lambda group: group.group_id)
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["group", "type", "state"], [list(row.values()) for row in rows])
    if listed.errors:
        raise failure(f"not all groups are listed: {'; '.join(map(reason, listed.errors))}")


def _states(names: tuple[str, ...]) -> set[ConsumerGroupState]:
    from confluent_kafka import ConsumerGroupState

    return {ConsumerGroupState[STATES[name]] for name in names}


def _types(names: tuple[str, ...]) -> set[ConsumerGroupType]:
    from confluent_kafka import ConsumerGroupType

    return {ConsumerGroupType[name.upper()] for name in names}


@groups.command()
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@client_options
@json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete groups that have no members, with all that they have committed, without asking.

    \b
    Example:
        minibroker groups delete billing
    """
    admin = admin_client(bootstrap)
    answers = admin.delete_consumer_groups(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_S)
    report_deleted(answers, as_json)


groups.add_command(describe)
groups.add_command(reset_offsets)
