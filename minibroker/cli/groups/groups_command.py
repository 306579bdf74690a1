"""`minibroker groups`: list and delete groups of any Kafka, of all types, and offsets that they committed.

`groups_describe` shows a group and its offsets, `groups_reset` moves them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connect_client, delete_each_by_name
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_describe import describe
from minibroker.cli.groups.groups_facts import (
    fetch_committed_offsets,
    list_group_names,
    send_request_to_group_coordinator,
)
from minibroker.cli.groups.groups_reset import reset_offsets
from minibroker.cli.groups.groups_share import delete_start_offsets
from minibroker.cli.groups.groups_types import TYPES, describe_group
from minibroker.cli.shared import (
    NamedCommand,
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
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


@click.command("delete-offsets", cls=NamedCommand)
@click.argument("group", shell_complete=make_names_completer("groups"))
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, required=True, help="Can be repeated.",
              shell_complete=make_names_completer("topics"))  # fmt: skip
@add_connection_options
@make_json_option("Print a JSON object.")
def delete_offsets(group: str, topics: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete a group's offsets of topics that it does not read, without confirmation.

    These are the committed offsets, or the start offsets of a share group, which must have no members.

    \b
    Example:
        minibroker groups delete-offsets billing --topic orders
    """
    from minibroker.client.client_errors import get_error_name

    with connect_client(bootstrap) as client:
        described = describe_group(client, group)
        if described.state == "Dead":
            raise make_not_found_error("group", group, list_group_names(client))
        delete = delete_start_offsets if described.type == "share" else _delete_committed_offsets
        codes = delete(client, group, dict.fromkeys(topics))
    deleted = [topic for topic, code in codes.items() if not code]
    if as_json:
        click.echo(json.dumps({"group": group, "deleted": deleted}))
    elif deleted:
        click.echo(f"deleted the offsets of {group} in {', '.join(deleted)}")
    refused = [f"{topic}: {get_error_name(code)}" for topic, code in codes.items() if code]
    if refused:
        raise make_operation_error(f"cannot delete the offsets of {group}: {'; '.join(refused)}")


def _delete_committed_offsets(client: Client, group: str, topics: Iterable[str]) -> dict[str, int]:
    """Delete the committed offsets of topics; return an error code for each. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.offsets import OffsetDeleteRequest

    of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
    places = fetch_committed_offsets(client, group)
    indexes = {topic: [index for name, index in sorted(places) if name == topic] for topic in topics}
    wanted_topics = [
        of_topic(
            name=topic,
            partitions=[of_topic.OffsetDeleteRequestPartition(partition_index=index) for index in partitions],
        )
        for topic, partitions in indexes.items()
        if partitions
    ]
    codes = {topic: 0 if indexes[topic] else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for topic in topics}
    if wanted_topics:
        answer = send_request_to_group_coordinator(
            client, group, OffsetDeleteRequest(group_id=group, topics=wanted_topics)
        )
        check_error_code(answer.error_code, f"cannot delete the offsets of {group}")
        for each in answer.topics:
            codes[each.name] = next((part.error_code for part in each.partitions if part.error_code), 0)
    return codes


@click.group(cls=WholeHelpGroup)
def groups() -> None:
    """List, describe, reset and delete groups.

    \b
    Example:
        minibroker groups describe billing
    """


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
        for node in client.fetch_node_ids():
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
