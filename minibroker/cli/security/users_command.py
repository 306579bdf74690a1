"""`minibroker users`: list, add and remove the users of SCRAM (KIP-554)."""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_not_found_error,
    print_rows_or_json,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
FEWEST_ITERATIONS: Final = 4096  # what Kafka allows
MOST_ITERATIONS: Final = 16_384


class ListedUser(NamedTuple):
    """A user that can log in with a mechanism."""

    user: str
    mechanism: str
    iterations: int


@click.group(cls=WholeHelpGroup)
def users() -> None:
    """List, add and remove the users that log in with SCRAM.

    \b
    Example:
        minibroker users add alice < password
    """


@users.command("list")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_users(bootstrap: Bootstrap, as_json: bool) -> None:
    """List the users, with their mechanisms and iterations.

    \b
    Example:
        minibroker users list
    """
    with connect_client(bootstrap) as client:
        rows = list_users_of_cluster(client)
    print_rows_or_json([row._asdict() for row in rows], ListedUser._fields, as_json)


def list_users_of_cluster(client: Client) -> list[ListedUser]:
    """Return all users, one row for each mechanism. Raises `ClientError`."""
    return [
        ListedUser(user, MECHANISMS[info.mechanism - 1], info.iterations)
        for user, infos in sorted(_describe_users(client).items())
        for info in sorted(infos, key=lambda info: info.mechanism)
    ]


@users.command()
@click.argument("name")
@click.option(
    "--mechanism", "mechanisms", type=click.Choice(MECHANISMS), multiple=True, help="Can be repeated.  [default: both]"
)
@click.option(
    "--iterations",
    type=click.IntRange(FEWEST_ITERATIONS, MOST_ITERATIONS),
    default=FEWEST_ITERATIONS,
    show_default=True,
    help="How often the password is hashed.",
)
@add_connection_options
def add(name: str, mechanisms: tuple[str, ...], iterations: int, bootstrap: Bootstrap) -> None:
    """Add a user, or change its password. The password is asked for, or read from a pipe.

    \b
    Example:
        minibroker users add alice --mechanism SCRAM-SHA-512 < password
    """
    from minibroker.broker.security.scram import BY_NAME, salt_password
    from minibroker.protocol.messages.security import AlterUserScramCredentialsRequest

    password = _read_password()
    upsertions = []
    for mechanism in [BY_NAME[text] for text in mechanisms or MECHANISMS]:
        salt = secrets.token_bytes(16)
        upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=salt,
            salted_password=salt_password(mechanism, password, salt, iterations),
        )
        upsertions.append(upsertion)
    with connect_client(bootstrap) as client:
        for upsertion in upsertions:  # Kafka takes a user once in a request
            _alter_credentials(client, f"cannot add {name}", upsertions=[upsertion])
    click.echo(f"added {name}")


@users.command()
@click.argument("name")
@add_connection_options
def remove(name: str, bootstrap: Bootstrap) -> None:
    """Remove a user. Its open connections continue.

    \b
    Example:
        minibroker users remove alice
    """
    from minibroker.protocol.messages.security import AlterUserScramCredentialsRequest

    deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    with connect_client(bootstrap) as client:
        known = _describe_users(client)
        if name not in known:
            raise make_not_found_error("user", name, known)
        for info in known[name]:
            _alter_credentials(
                client, f"cannot remove {name}", deletions=[deletion(name=name, mechanism=info.mechanism)]
            )
    click.echo(f"removed {name}")


def _read_password() -> str:
    """Return the password that a person types, or that comes by a pipe. Raises click.UsageError."""
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password is empty")
    return password


def _describe_users(client: Client) -> dict[str, list[Any]]:
    """Return what is known of all users. Raises `ClientError`."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.security import DescribeUserScramCredentialsRequest

    answer = client.request(DescribeUserScramCredentialsRequest(users=None))
    check_error_code(answer.error_code, "cannot list users", answer.error_message)
    return {result.user: result.credential_infos for result in answer.results}


def _alter_credentials(client: Client, action: str, **changes: Any) -> None:
    """Send AlterUserScramCredentials with these fields. Raises `ClientError`; `action` begins its message."""
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.security import AlterUserScramCredentialsRequest

    for result in client.request(AlterUserScramCredentialsRequest(**changes), client.fetch_controller_id()).results:
        check_error_code(result.error_code, action, result.error_message)
