"""`minibroker groups delete-offsets`: deletes what a group has read of topics."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.groups.groups_facts import (
    fetch_committed_offsets,
    list_group_names,
    send_request_to_group_coordinator,
)
from minibroker.cli.groups.groups_share import delete_start_offsets
from minibroker.cli.groups.groups_types import describe_group
from minibroker.cli.shared import (
    NamedCommand,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


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
