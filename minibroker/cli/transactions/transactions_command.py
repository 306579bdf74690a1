"""`minibroker transactions`: list and describe the transactions of any Kafka, and end those that hang.

A transaction hangs if it is open in a log and no coordinator knows it: nothing ends it, and it blocks `read_committed`
consumers for ever (KIP-664).
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import connect_client, get_all_topics
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    OFFSET,
    PARTITION,
    WholeHelpGroup,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
    print_rows,
    print_rows_or_json,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


NO_OFFSET = -1
NO_LEADER = -1
MARKERS_VERSION = 1  # that of Kafka 4.0; with it the marker has the producer's current epoch
STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class OpenTransaction(NamedTuple):
    """A producer's open transaction in a partition; `last_ms` is the time of its last write, in ms since 1970."""

    topic: str
    partition: int
    leader: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_ms: int


@click.group(cls=WholeHelpGroup)
def transactions() -> None:
    """List, describe and abort transactions.

    \b
    Example:
        minibroker transactions describe orders-1
    """


@transactions.command("find-hanging")
@click.option("--topic", help="Only the partitions of this topic.", shell_complete=make_names_completer("topics"))
@click.option(
    "--max-transaction-timeout",
    "minutes",
    metavar="MINUTES",
    type=click.IntRange(0),
    default=15,
    show_default=True,
    help="The longest time of a transaction, the brokers' transaction.max.timeout.ms.",
)
@add_connection_options
@make_json_option("Print a JSON array.")
def find_hanging(topic: str | None, minutes: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Find transactions that have been open for too long in a log and that no coordinator knows.

    \b
    Example:
        minibroker transactions find-hanging --topic orders
    """
    before_ms = time.time() * 1000 - minutes * 60_000
    with connect_client(bootstrap) as client:
        candidates = [each for each in list_open_transactions(client, topic) if each.last_ms < before_ms]
        known = list_known_transactions(client, {each.producer_id for each in candidates})
    hanging = [each for each in candidates if (each.producer_id, each.topic, each.partition) not in known]
    print_rows_or_json([each._asdict() for each in hanging], OpenTransaction._fields, as_json)


@transactions.command()
@click.option("--topic", required=True, help="The topic.", shell_complete=make_names_completer("topics"))
@click.option("--partition", required=True, type=PARTITION, help="The partition.")
@click.option("--start-offset", required=True, type=OFFSET, help="The first offset of the transaction.")
@add_connection_options
def abort(topic: str, partition: int, start_offset: int, bootstrap: Bootstrap) -> None:
    """Abort a hanging transaction in one partition, without confirmation.

    \b
    Example:
        minibroker transactions abort --topic orders --partition 0 --start-offset 17
    """
    with connect_client(bootstrap) as client:
        for open_transaction in list_open_transactions(client, topic):
            if (open_transaction.partition, open_transaction.start_offset) == (partition, start_offset):
                _abort_transaction(client, open_transaction)
                click.echo(f"aborted the transaction of producer {open_transaction.producer_id} in {topic}-{partition}")
                return
    raise make_operation_error(f"no open transaction of {topic}-{partition} begins at offset {start_offset}")


def list_open_transactions(client: Client, only_topic: str | None) -> list[OpenTransaction]:
    """Return the open transactions in the logs of a topic, or of all topics. Raises click.ClickException."""
    by_leader: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    found = get_all_topics(client)
    if only_topic is not None and only_topic not in found:
        raise make_not_found_error("topic", only_topic, found)
    for topic in found.values() if only_topic is None else (found[only_topic],):
        for partition in topic.partitions:
            if partition.leader_id != NO_LEADER:
                by_leader[partition.leader_id][topic.name].append(partition.partition_index)
    return [
        each
        for leader, partitions in by_leader.items()
        for each in _list_open_transactions_at_leader(client, leader, partitions)
    ]


def _list_open_transactions_at_leader(
    client: Client, leader: int, partitions: dict[str, list[int]]
) -> list[OpenTransaction]:
    from minibroker.protocol.messages.transactions import DescribeProducersRequest

    Asked = DescribeProducersRequest.TopicRequest
    request = DescribeProducersRequest(
        topics=[Asked(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
    )
    hanging = []
    for topic in client.request(request, leader).topics:
        for partition in topic.partitions:
            what = f"cannot describe the producers of {topic.name}-{partition.partition_index}"
            client.check(partition.error_code, what, leader)
            hanging += [
                _make_open_transaction(topic.name, partition.partition_index, leader, producer)
                for producer in partition.active_producers
                if producer.current_txn_start_offset != NO_OFFSET
            ]
    return hanging


def _make_open_transaction(topic: str, partition: int, leader: int, producer: Any) -> OpenTransaction:
    """Return the open transaction of a producer, as DescribeProducers describes it."""
    return OpenTransaction(
        topic,
        partition,
        leader,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


def list_known_transactions(client: Client, producer_ids: set[int]) -> set[tuple[int, str, int]]:
    """Return (producer id, topic, partition) of these producers' transactions at the coordinators."""
    from minibroker.protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest

    known = set()
    for node in client.fetch_node_ids() if producer_ids else ():
        listed = client.request(ListTransactionsRequest(producer_id_filters=sorted(producer_ids)), node)
        client.check(listed.error_code, f"cannot list the transactions of broker {node}", node)
        ids = [each.transactional_id for each in listed.transaction_states]
        for transaction_state in client.request(
            DescribeTransactionsRequest(transactional_ids=ids), node
        ).transaction_states:
            client.check(transaction_state.error_code, f"cannot describe {transaction_state.transactional_id}", node)
            known |= {
                (transaction_state.producer_id, topic.topic, index)
                for topic in transaction_state.topics
                for index in topic.partitions
            }
    return known


def _abort_transaction(client: Client, transaction: OpenTransaction) -> None:
    from minibroker.protocol.messages.transactions import WriteTxnMarkersRequest

    Marker = WriteTxnMarkersRequest.WritableTxnMarker
    topic = Marker.WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])
    marker = Marker(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_result=False,
        topics=[topic],
        coordinator_epoch=max(transaction.coordinator_epoch, 0),
    )
    answer = client.request(WriteTxnMarkersRequest(markers=[marker]), transaction.leader, highest=MARKERS_VERSION)
    code = answer.markers[0].topics[0].partitions[0].error_code
    client.check(code, f"cannot abort in {transaction.topic}-{transaction.partition}", transaction.leader)


@transactions.command("list")
@click.option("--state", "states", type=click.Choice(STATES, False), multiple=True, help="Only ids in this state.")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_transactions(states: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """List the transactional ids and the states of their transactions.

    \b
    Example:
        minibroker transactions list --state Ongoing
    """
    with connect_client(bootstrap) as client:
        rows = _list_transactions(client, states)
    print_rows_or_json(rows, ("transactional_id", "coordinator", "producer_id", "state"), as_json)


def _list_transactions(client: Client, states: tuple[str, ...]) -> list[dict[str, Any]]:
    from minibroker.protocol.messages.transactions import ListTransactionsRequest

    rows: list[dict[str, Any]] = []
    for node in client.fetch_node_ids():
        answer = client.request(ListTransactionsRequest(state_filters=list(states)), node)
        client.check(answer.error_code, f"cannot list the transactions of broker {node}", node)
        rows += [
            {
                "transactional_id": each.transactional_id,
                "coordinator": node,
                "producer_id": each.producer_id,
                "state": each.transaction_state,
            }
            for each in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["transactional_id"]))


@transactions.command()
@click.argument("transactional_id")
@add_connection_options
@make_json_option("Print a JSON object.")
def describe(transactional_id: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show the producer of a transactional id, and its transaction's start and partitions.

    \b
    Example:
        minibroker transactions describe orders-1 --json
    """
    with connect_client(bootstrap) as client:
        row = _describe_transaction(client, transactional_id)
    if as_json:
        click.echo(json.dumps(row))
    else:
        print_rows([row])


def _describe_transaction(client: Client, transactional_id: str) -> dict[str, Any]:
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.transactions import DescribeTransactionsRequest

    node = client.find_coordinator("transaction", transactional_id)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = client.request(request, node).transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise make_not_found_error(
            "transactional id", transactional_id, (row["transactional_id"] for row in _list_transactions(client, ()))
        )
    client.check(state.error_code, f"cannot describe {transactional_id}", node)
    return {
        "transactional_id": transactional_id,
        "coordinator": node,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.transaction_state,
        "timeout_ms": state.transaction_timeout_ms,
        "start_ms": None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        "partitions": [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions],
    }
