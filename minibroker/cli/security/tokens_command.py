"""`minibroker tokens`: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_operation_error,
    parse_duration,
    print_rows,
    print_rows_or_json,
)
from minibroker.quantities import format_time

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

USER: Final = "User"
AS_LONG_AS_POSSIBLE: Final = -1
AT_ONCE: Final = -1
NAMES: Final = ("id", "owner", "requester", "renewers", "issued_ms", "expires_ms", "max_ms")
FIRST_WITH_OWNER: Final = 3  # version of CreateDelegationToken


@click.group(cls=WholeHelpGroup)
def tokens() -> None:
    """Create, renew, expire and describe delegation tokens. Log in with SASL or a certificate for that.

    \b
    Example:
        minibroker tokens create --renewer bob
    """


@tokens.command()
@click.option("--renewer", "renewers", metavar="USER", multiple=True,
              help="A user who may renew it, too. Can be repeated.")  # fmt: skip
@click.option("--owner", metavar="USER", help="The user that the token is for.  [default: yourself]")
@click.option("--max-lifetime", metavar="DURATION", type=parse_duration,
              help="How long it lives at most, however often it is renewed.")  # fmt: skip
@add_connection_options
@make_json_option("Print a JSON object.")
def create(
    renewers: tuple[str, ...], owner: str | None, max_lifetime: int | None, bootstrap: Bootstrap, as_json: bool
) -> None:
    """Create a token and print it with its secret: the id is the name to log in with, the secret the password.

    \b
    Example:
        minibroker tokens create --renewer bob --max-lifetime 1d
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.delegation_tokens import CreateDelegationTokenRequest

    named = [
        CreateDelegationTokenRequest.CreatableRenewers(principal_type=USER, principal_name=name) for name in renewers
    ]
    request = CreateDelegationTokenRequest(renewers=named, max_lifetime_ms=max_lifetime or AS_LONG_AS_POSSIBLE)
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = USER, owner
    with connect_client(bootstrap) as client:
        lowest = 0 if owner is None else FIRST_WITH_OWNER
        answer = client.request(request, client.fetch_controller_id(), lowest=lowest)
        refused = answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        check_error_code(
            answer.error_code, "cannot create a token", "log in first, and not with a token" if refused else None
        )
    row = {
        "id": answer.token_id,
        "secret": base64.b64encode(answer.hmac).decode(),
        "owner": answer.principal_name,
        "issued_ms": answer.issue_timestamp_ms,
        "expires_ms": answer.expiry_timestamp_ms,
        "max_ms": answer.max_timestamp_ms,
    }
    if as_json:
        click.echo(json.dumps(row))
    else:
        print_rows([row])


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option("--period", metavar="DURATION", type=parse_duration,
              help="How long it is valid from now on.  [default: the longest]")  # fmt: skip
@add_connection_options
def renew(token_id: str, period: int | None, bootstrap: Bootstrap) -> None:
    """Renew a token that is yours, or that you may renew.

    \b
    Example:
        minibroker tokens renew 5aoUbEYkTzKOLvIuTjvO5w --period 12h
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.delegation_tokens import RenewDelegationTokenRequest

    with connect_client(bootstrap) as client:
        request = RenewDelegationTokenRequest(
            hmac=_find_secret(client, token_id), renew_period_ms=period or AS_LONG_AS_POSSIBLE
        )
        answer = client.request(request, client.fetch_controller_id())
        check_error_code(answer.error_code, "cannot renew the token")
    click.echo(f"{token_id} expires at {format_time(answer.expiry_timestamp_ms)} UTC")


@tokens.command()
@click.argument("token_id", metavar="ID")
@click.option(
    "--after", metavar="DURATION", type=parse_duration, help="How long it stays valid.  [default: not at all]"
)
@add_connection_options
def expire(token_id: str, after: int | None, bootstrap: Bootstrap) -> None:
    """Let a token expire, at once or later. Open sessions continue.

    \b
    Example:
        minibroker tokens expire 5aoUbEYkTzKOLvIuTjvO5w
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.delegation_tokens import ExpireDelegationTokenRequest

    with connect_client(bootstrap) as client:
        request = ExpireDelegationTokenRequest(
            hmac=_find_secret(client, token_id), expiry_time_period_ms=after or AT_ONCE
        )
        answer = client.request(request, client.fetch_controller_id())
        check_error_code(answer.error_code, "cannot expire the token")
    click.echo(
        f"removed {token_id}"
        if after is None
        else f"{token_id} expires at {format_time(answer.expiry_timestamp_ms)} UTC"
    )


@tokens.command()
@click.option("--owner", "owners", metavar="USER", multiple=True, help="Only tokens of this user. Can be repeated.")
@click.option("--secrets", "with_secrets", is_flag=True, help="Print the secrets, too.")
@add_connection_options
@make_json_option("Print a JSON array.")
def describe(owners: tuple[str, ...], with_secrets: bool, bootstrap: Bootstrap, as_json: bool) -> None:
    """Describe the tokens that you may see: yours, those that you may renew, and those that ACLs let you describe.

    \b
    Example:
        minibroker tokens describe --owner alice
    """
    with connect_client(bootstrap) as client:
        rows = [_make_token_row(token, with_secrets) for token in _describe_tokens(client, owners)]
    rows.sort(key=lambda row: (row["owner"], row["issued_ms"], row["id"]))
    print_rows_or_json(rows, NAMES, as_json)


def _make_token_row(token: Any, with_secret: bool) -> dict[str, Any]:
    return {
        "id": token.token_id,
        **({"secret": base64.b64encode(token.hmac).decode()} if with_secret else {}),
        "owner": token.principal_name,
        "requester": token.token_requester_principal_name or None,  # older brokers do not say
        "renewers": [renewer.principal_name for renewer in token.renewers],
        "issued_ms": token.issue_timestamp,
        "expires_ms": token.expiry_timestamp,
        "max_ms": token.max_timestamp,
    }


def _describe_tokens(client: Client, owners: tuple[str, ...]) -> list[Any]:
    """Return the tokens that the client may see. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.delegation_tokens import DescribeDelegationTokenRequest

    shape = DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
    named = [shape(principal_type=USER, principal_name=name) for name in owners]
    answer = client.request(DescribeDelegationTokenRequest(owners=named or None))
    check_error_code(answer.error_code, "cannot describe tokens")
    return list(answer.tokens)


def _find_secret(client: Client, token_id: str) -> bytes:
    """Return the HMAC of a token, so that nobody has to write it on a command line. Raises click.ClickException."""
    found: bytes | None = next((one.hmac for one in _describe_tokens(client, ()) if one.token_id == token_id), None)
    if found is None:
        raise make_operation_error(f"there is no token {token_id} that you may see")
    return found
