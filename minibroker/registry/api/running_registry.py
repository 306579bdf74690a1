"""A registry with its server, beside a broker that may be stopped and started again."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Final

from minibroker.addresses import HostPort, host_port, is_loopback
from minibroker.broker.lifecycle import StartError
from minibroker.registry.api.registry_api import RegistryApi
from minibroker.registry.api.registry_application import Observer, RegistryApplication
from minibroker.registry.api.registry_logins import BrokersUsers, tls_of
from minibroker.registry.state.registry import Registry
from minibroker.web.asgi import Asgi
from minibroker.web.server import Server

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker

REMEDY: Final = (
    "the schema registry needs the extra registry: python3 -m pip install uvicorn protobuf googleapis-common-protos"
)


class RunningRegistry:
    """A registry, and its address."""

    def __init__(self, cluster: Callable[[], Broker], address: HostPort, observer: Observer | None = None) -> None:
        """`cluster` returns the broker that runs now. Raises StartError if the address is taken."""
        self._cluster = cluster
        self.registry = Registry(cluster)
        with _start_errors():
            self.server = Server(address)
        application = RegistryApplication(
            RegistryApi(self.registry), BrokersUsers(cluster), observer, is_private=is_loopback(address.host)
        )
        self._application = Asgi(application.answer)

    async def start(self) -> None:
        """Serve, with the security of the broker's first listener. Raises StartError."""
        with _start_errors():
            await self.server.start(self._application, tls_of(self._cluster()))


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    """Raise StartError for what prevents a server from starting."""
    try:
        yield
    except ImportError:
        raise StartError(REMEDY) from None
    except OSError as error:
        raise StartError(str(error)) from None


def registry_address(text: str) -> HostPort:
    """Parse "HOST:PORT" or "PORT". Raises StartError."""
    try:
        return host_port(text)
    except ValueError as error:
        raise StartError(f"--registry {text}: {error}") from None


def registry_line(url: str) -> str:
    """Return the line that announces a registry."""
    return f"minibroker has a schema registry at {url}"


@contextlib.asynccontextmanager
async def registry_beside(cluster: Callable[[], Broker], address: str) -> AsyncIterator[str]:
    """Serve a registry beside a broker that runs; yield the line that announces it. Raises StartError."""
    running = RunningRegistry(cluster, registry_address(address))
    try:
        await running.start()
        yield registry_line(running.server.url)
        await running.server.stop()
    finally:
        running.server.close()
