"""`minibroker records`: deletes the first records of partitions of any Kafka, after showing how many these are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from minibroker.cli.administration import TopicPartition, connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.places import (
    PartitionPlace,
    RequestedTopic,
    find_offsets_at,
    list_partitions,
    parse_offset_or_time,
    parse_topic,
)
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_operation_error,
    print_table,
)
from minibroker.quantities import format_count

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


class PartitionCut(NamedTuple):
    """The first and the next offset of a partition, and the offset before which records are deleted."""

    topic: str
    partition: int
    earliest: int
    latest: int
    before: int
    records: int  # as offsets count them: compacted logs have fewer


@click.group(cls=WholeHelpGroup)
def records() -> None:
    """Delete the first records of partitions.

    \b
    Example:
        minibroker records delete orders --before '7 days ago'
    """


@records.command()
@click.argument("topics", metavar="TOPIC[:P,...]...", nargs=-1, required=True, type=parse_topic,
                shell_complete=make_names_completer("topics"))  # fmt: skip
@click.option("--before", "places", metavar="WHERE", type=parse_offset_or_time, multiple=True, required=True,
              help="An offset, a time, latest for all, or for one partition, as in 0=42.")  # fmt: skip
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@add_connection_options
@make_json_option("Print a JSON object.")
def delete(
    topics: tuple[RequestedTopic, ...],
    places: tuple[PartitionPlace, ...],
    execute: bool,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Delete the records before an offset or a time. Without --execute, nothing is changed.

    A time is that of the first record that stays; with latest, none stays. Partitions without a place keep all records.

    \b
    Example:
        minibroker records delete orders:0,1 --before 42 --execute
        minibroker records delete orders --before '7 days ago'
    """
    with connect_client(bootstrap) as client:
        cuts = _plan_deletions(client, list_partitions(client, topics), places)
        if execute:
            _delete_records(client, [cut for cut in cuts if cut.records])
    if as_json:
        click.echo(json.dumps({"executed": execute, "partitions": [cut._asdict() for cut in cuts]}))
        return
    print_table(PartitionCut._fields, cuts)
    click.echo()
    deleted = f"{format_count(sum(cut.records for cut in cuts), 'record')} deleted"
    click.echo(deleted if execute else "nothing was changed; add --execute to do it")


def _plan_deletions(
    client: Client, partitions: Sequence[TopicPartition], places: Sequence[PartitionPlace]
) -> list[PartitionCut]:
    """Return for each partition its first and next offset, and the one before which records are to be deleted."""
    from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

    earliest, latest = (list_offsets(client, dict.fromkeys(partitions, where)) for where in (EARLIEST, LATEST))
    before = find_offsets_at(client, partitions, places, "earliest")
    return [
        PartitionCut(*each, earliest[each], latest[each], before[each], max(0, before[each] - earliest[each]))
        for each in partitions
    ]


def _delete_records(client: Client, partition_cuts: Sequence[PartitionCut]) -> None:
    """Delete records at each leader. Raises click.ClickException with the partitions that keep theirs."""
    from minibroker.client.client_errors import ClientError

    refused = []
    for cut in partition_cuts:
        try:
            client.retry(lambda cut=cut: _send_delete_records(client, cut))  # type: ignore[misc]
        except ClientError as error:
            refused.append(str(error))
    if refused:
        raise make_operation_error("; ".join(refused))


def _send_delete_records(client: Client, partition_cut: PartitionCut) -> None:
    from minibroker.protocol.messages.log_offsets import DeleteRecordsRequest

    of_topic = DeleteRecordsRequest.DeleteRecordsTopic
    partition = of_topic.DeleteRecordsPartition(partition_index=partition_cut.partition, offset=partition_cut.before)
    request = DeleteRecordsRequest(
        topics=[of_topic(name=partition_cut.topic, partitions=[partition])],
        timeout_ms=client.settings.request_timeout_ms,
    )
    node = client.find_leader((partition_cut.topic, partition_cut.partition)).node_id
    ((answer,),) = (topic.partitions for topic in client.request(request, node).topics)
    client.check(answer.error_code, f"cannot delete records of {partition_cut.topic}-{partition_cut.partition}", node)
