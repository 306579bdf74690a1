"""`minibroker transactions`: list and describe the transactions of any Kafka.

`transactions_hanging` finds and aborts those that no coordinator will end.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_not_found_error,
    print_help_if_alone,
    print_rows,
)
from minibroker.cli.transactions.transactions_hanging import abort, find_hanging

if TYPE_CHECKING:
    from minibroker.client.blocking import Client
STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group(cls=WholeHelpGroup, invoke_without_command=True)
@click.pass_context
def transactions(context: click.Context) -> None:
    """List, describe and abort transactions.

    \b
    Example:
        minibroker transactions describe orders-1
    """
    print_help_if_alone(context)


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
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_rows(rows, ("transactional_id", "coordinator", "producer_id", "state"))


def _list_transactions(client: Client, states: tuple[str, ...]) -> list[dict[str, Any]]:
    from minibroker.protocol.messages.transactions import ListTransactionsRequest

    rows: list[dict[str, Any]] = []
    for node in client.nodes():
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

    node = client.coordinator("transaction", transactional_id)
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


transactions.add_command(abort)
transactions.add_command(find_hanging)
