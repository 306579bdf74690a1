"""`minibroker replay`: sends recorded requests to another cluster, and says which answers differ."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from minibroker.cli.connecting import (
    add_client_setting_options,
    add_timeout_option,
    get_default_client_settings,
    make_bootstrap,
    make_unreachable_error,
    parse_servers,
)
from minibroker.cli.shared import CLIENT_ID
from minibroker.quantities import format_count

if TYPE_CHECKING:
    from minibroker.client.connection_settings import ClientSettings
    from minibroker.testing.seen.exchange import Exchange

DIFFERENT = 1


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--to", metavar="HOST[:PORT]", required=True, type=parse_servers, help="A bootstrap server of the cluster."
)
@click.option("--api", metavar="NAME", help="Send only requests of this API.")
@click.option("--client-id", metavar="ID", help="Send only requests of the clients with this id.")
@add_timeout_option
@add_client_setting_options
def replay(
    file: Path,
    to: str,
    api: str | None,
    client_id: str | None,
    connect_timeout_s: float | None,
    client: tuple[tuple[str, str], ...],
) -> None:
    """Send the requests that `minibroker proxy --save` or a journal has saved in a file to another cluster.

    They are sent in their order, and at the same time where they were. Answers that differ are printed, field by field;
    then the status is 1. Ids that a cluster chooses (of topics, members, producers, sessions) are exchanged for the new
    ones. What differs between any two clusters is not compared: addresses, the cluster's id, throttle times.

    \b
    Example:
        minibroker replay session.flows --to 127.0.0.1:9092
    """
    from minibroker.client.client_errors import ClientError, SettingError
    from minibroker.client.connection_settings import ClientSettings
    from minibroker.proxy.flows import FlowError, read_exchanges
    from minibroker.testing.seen.journal import make_exchange_filter

    bootstrap = make_bootstrap(to, client, connect_timeout_s, "info")
    try:
        settings = ClientSettings({**get_default_client_settings(bootstrap), **dict(bootstrap.settings)}, CLIENT_ID)
        meets = make_exchange_filter(api, client_id=client_id)
        exchanges = [each for each in read_exchanges(file) if meets(each)]
    except (SettingError, FlowError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    try:
        is_same = asyncio.run(_replay_exchanges(settings, exchanges))
    except ClientError as error:
        raise make_unreachable_error(bootstrap, str(error)) from None
    if not is_same:
        sys.exit(DIFFERENT)


async def _replay_exchanges(settings: ClientSettings, exchanges: list[Exchange]) -> bool:
    """Replay the exchanges, and print what differs. Return whether nothing does."""
    from minibroker.proxy.replaying import ExchangeReplay

    sent = different = skipped = 0
    async for each in ExchangeReplay(settings).replay_exchanges(exchanges):
        skipped += each.is_skipped
        sent += not each.is_skipped
        lines = [each.problem] if each.problem else each.differences
        if lines:
            different += 1
            click.echo(f"#{each.exchange.number} {each.exchange.api} {each.exchange.version}")
            for line in lines:
                click.echo(f"  {line}")
    left_out = f", {format_count(skipped, 'request')} of logins left out" if skipped else ""
    click.echo(f"{format_count(sent, 'request')} sent, {format_count(different, 'answer')} differ{left_out}")
    return not different
