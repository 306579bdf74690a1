"""Options for the registry that a command asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli import variables
from minibroker.cli.connecting import CONNECT_TIMEOUT_S, Seconds, ServerUnreachable
from minibroker.cli.shared import make_operation_error

if TYPE_CHECKING:
    from minibroker.registry.registry_client import RegistryClient

DEFAULT: Final = "http://127.0.0.1:8081"
ABOUT: Final = "The registry's URL; to log in: http://NAME:PASSWORD@HOST:PORT."
Command = Callable[..., Any]


def make_registry_options(default: str | None = DEFAULT, about: str = ABOUT) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the registry; its command gets a client as its argument `registry`.

    That is None if there is no URL, not even a default. A request that is refused ends the command with a line and
    status 1; one without an answer with status 2.
    """

    def add_registry_options(command: Command) -> Command:
        @click.option(
            "--registry", metavar="URL", envvar=variables.REGISTRY, default=default, show_default=True, help=about
        )
        @click.option("--registry-token", metavar="TOKEN", help="A bearer token for the registry.")
        @click.option("--registry-ca", metavar="FILE", type=click.Path(dir_okay=False),
                      help="Certificates (PEM) to trust instead of the system's.")  # fmt: skip
        @click.option("--registry-timeout", metavar="SECONDS", type=Seconds(),
                      default=CONNECT_TIMEOUT_S, show_default=True,
                      help="How long to wait for an answer of the registry.")  # fmt: skip
        @wraps(command)
        def call_with_registry_client(
            registry: str | None,
            registry_token: str | None,
            registry_ca: str | None,
            registry_timeout: float,
            **rest: Any,
        ) -> Any:
            if registry is None:
                return command(registry=None, **rest)
            from minibroker.registry.registry_client import RequestFailed  # most records are consumed without one

            client = _make_registry_client(registry, registry_token, registry_ca, registry_timeout)
            try:
                return command(registry=client, **rest)
            except RequestFailed as error:
                raise (make_operation_error(str(error)) if error.code else ServerUnreachable(str(error))) from None

        return call_with_registry_client

    return add_registry_options


def _make_registry_client(url: str, token: str | None, authority: str | None, timeout_s: float) -> RegistryClient:
    """Return a client. Raises click.UsageError for a file that cannot be read."""
    import ssl

    from minibroker.registry.registry_client import RegistryClient

    try:
        return RegistryClient(url, token, authority, timeout_s)
    except ssl.SSLError:
        raise click.UsageError(f"--registry-ca: {authority} has no certificates in PEM") from None
    except OSError as error:
        raise click.UsageError(f"--registry-ca: {authority}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--registry: {error}") from None
