"""`minibroker quotas`: list, set and remove the quotas of clients (KIP-546)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import WholeHelpGroup, make_json_option, parse_assignment, print_rows_or_json

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

Command = Callable[..., Any]
DEFAULT = "*"
HEAD = ("user", "client-id", "ip", "quota", "value")


class ListedQuota(NamedTuple):
    """A quota of a user, a client id, both, or an address; "*" is the default."""

    user: str | None
    client_id: str | None
    ip: str | None
    quota: str
    value: float


@click.group(cls=WholeHelpGroup)
def quotas() -> None:
    """List, set and remove the quotas of users, client ids and addresses.

    \b
    Example:
        minibroker quotas set --user alice producer_byte_rate=1000000
    """


def _add_entity_options(command: Command) -> Command:
    for flag, what in (("--ip", "An address"), ("--client-id", "A client id"), ("--user", "A user")):
        command = click.option(flag, help=f"{what}; * for each that has no quotas of its own.")(command)
    return command


@quotas.command("list")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_quotas(bootstrap: Bootstrap, as_json: bool) -> None:
    """List all quotas. The name * stands for the default.

    \b
    Example:
        minibroker quotas list
    """
    with connect_client(bootstrap) as client:
        rows = list_quotas_of_cluster(client)
    print_rows_or_json([dict(zip(HEAD, row, strict=True)) for row in rows], HEAD, as_json)


def list_quotas_of_cluster(client: Client) -> list[ListedQuota]:
    """Return all quotas. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.quotas import DescribeClientQuotasRequest

    answer = client.request(DescribeClientQuotasRequest(components=[]))
    check_error_code(answer.error_code, "cannot list quotas", answer.error_message)
    rows = []
    for entry in answer.entries or ():
        named = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in entry.entity}
        entity = named.get("user"), named.get("client-id"), named.get("ip")
        rows += [ListedQuota(*entity, value.key, value.value) for value in entry.values]
    return sorted(rows, key=str)


@quotas.command("set")
@click.argument("limits", metavar="NAME=VALUE...", nargs=-1, required=True, type=parse_assignment)
@_add_entity_options
@add_connection_options
def set_quotas(limits: tuple[tuple[str, str], ...], bootstrap: Bootstrap, **options: str | None) -> None:
    """Set quotas: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate (of a user or
    client id), connection_creation_rate (of an address).

    \b
    Example:
        minibroker quotas set --user alice --client-id app consumer_byte_rate=1000000
    """
    wanted = {}
    for name, text in limits:
        try:
            wanted[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name} is a number, and cannot be {text!r}") from None
    _alter_quotas(bootstrap, options, wanted, removes=False)
    click.echo(f"set {', '.join(wanted)}")


@quotas.command()
@click.argument("names", nargs=-1, required=True)
@_add_entity_options
@add_connection_options
def remove(names: tuple[str, ...], bootstrap: Bootstrap, **options: str | None) -> None:
    """Remove quotas.

    \b
    Example:
        minibroker quotas remove --user alice producer_byte_rate
    """
    _alter_quotas(bootstrap, options, dict.fromkeys(names, 0.0), removes=True)
    click.echo(f"removed {', '.join(names)}")


def _alter_quotas(
    bootstrap: Bootstrap, options: dict[str, str | None], limits: dict[str, float], *, removes: bool
) -> None:
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.quotas import AlterClientQuotasRequest

    shape = AlterClientQuotasRequest.EntryData
    named = [(option.replace("_", "-"), name) for option, name in options.items() if name is not None]
    if not named:
        raise click.UsageError("choose one of --user, --client-id, --ip, or the first two")
    entity = [shape.EntityData(entity_type=kind, entity_name=None if name == DEFAULT else name) for kind, name in named]
    changes = [shape.OpData(key=key, value=value, remove=removes) for key, value in limits.items()]
    with connect_client(bootstrap) as client:
        request = AlterClientQuotasRequest(entries=[shape(entity=entity, ops=changes)])
        (answer,) = client.request(request, client.fetch_controller_id()).entries
        check_error_code(answer.error_code, "cannot change quotas", answer.error_message)
