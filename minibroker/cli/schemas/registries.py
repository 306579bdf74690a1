"""Options for the registry that a command asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

from minibroker.cli.shared import failure
from minibroker.registry.registry_client import RegistryClient, RequestFailed

VARIABLE: Final = "MINIBROKER_REGISTRY_URL"
DEFAULT: Final = "http://127.0.0.1:8081"
Command = Callable[..., Any]


def registry_options(command: Command) -> Command:
    """Add the options of the registry; the command gets a client as its argument `registry`.

    A request that fails ends the command with a line and status 1.
    """

    @click.option("--registry", metavar="URL", envvar=VARIABLE, default=DEFAULT, show_default=True,
                  help="The registry's URL; to log in: http://NAME:PASSWORD@HOST:PORT.")  # fmt: skip
    @click.option("--registry-token", metavar="TOKEN", help="A bearer token for the registry.")
    @click.option("--registry-ca", metavar="FILE", type=click.Path(dir_okay=False),
                  help="Certificates (PEM) to trust instead of the system's.")  # fmt: skip
    @wraps(command)
    def with_client(registry: str, registry_token: str | None, registry_ca: str | None, **rest: Any) -> Any:
        client = registry_client(registry, registry_token, registry_ca)
        try:
            return command(registry=client, **rest)
        except RequestFailed as error:
            raise failure(str(error)) from None

    return with_client


def registry_client(url: str, token: str | None = None, authority: str | None = None) -> RegistryClient:
    """Return a client. Raises click.UsageError for a file that cannot be read."""
    try:
        return RegistryClient(url, token, authority)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"--registry: {error}") from None
