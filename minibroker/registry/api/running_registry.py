"""A registry with its server, beside a broker that may be stopped and started again."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

from minibroker.addresses import HostPort, is_loopback, parse_host_port
from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.lifecycle import StartError
from minibroker.registry.state.registry import Registry
from minibroker.web.asgi import AsgiApplication
from minibroker.web.server import Server

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.registry.api.registry_application import RegistryApplication, RequestObserver
    from minibroker.web.messages import Answer, Request

REMEDY: Final = (
    "the schema registry needs the extra registry: python3 -m pip install h11 protobuf googleapis-common-protos"
)


class RunningRegistry:
    """A registry, and its address."""

    def __init__(
        self, cluster: Callable[[], Broker], address: HostPort, observer: RequestObserver | None = None
    ) -> None:
        """`cluster` returns the broker that runs now. Raises StartError if the address is taken."""
        self._cluster, self._observer = cluster, observer
        self._is_private = is_loopback(address.host)
        self.registry = Registry(cluster)
        with _translate_start_errors():
            self.server = Server(address)
        self._asgi = AsgiApplication(self.answer)

    async def start(self) -> None:
        """Serve, with the security of the broker's first listener. Raises StartError."""
        with _translate_start_errors():
            await self.server.start(self._asgi, _make_tls_context(self._cluster()))

    async def answer(self, request: Request) -> Answer:
        """Answer a request, as the server does."""
        return await self._application.answer(request)

    @cached_property
    def _application(self) -> RegistryApplication:
        """The registry's HTTP application, made and imported at the first request."""
        from minibroker.registry.api.registry_api import RegistryApi
        from minibroker.registry.api.registry_application import RegistryApplication
        from minibroker.registry.api.registry_logins import BrokerUsersGuard

        api, users = RegistryApi(self.registry), BrokerUsersGuard(self._cluster)
        return RegistryApplication(api, users, self._observer, is_private=self._is_private)


def _make_tls_context(cluster: Broker) -> ssl.SSLContext | None:
    """Return the TLS of the broker's first listener, or None if it has none."""
    listener = make_broker_listeners(cluster.static_settings)[0]
    if not listener.has_tls:
        return None
    return next(iter(cluster.nodes.values())).tls[listener.name].current.context


@contextlib.contextmanager
def _translate_start_errors() -> Iterator[None]:
    """Raise StartError for what prevents a server from starting."""
    try:
        yield
    except ImportError:
        raise StartError(REMEDY) from None
    except OSError as error:
        raise StartError(str(error)) from None


def parse_registry_address(text: str) -> HostPort:
    """Parse "HOST:PORT" or "PORT". Raises StartError."""
    try:
        return parse_host_port(text)
    except ValueError as error:
        raise StartError(f"--registry {text}: {error}") from None


def make_registry_line(url: str) -> str:
    """Return the line that announces a registry."""
    return f"minibroker has a schema registry at {url}"


@contextlib.asynccontextmanager
async def serve_registry_alongside(cluster: Callable[[], Broker], address: str) -> AsyncIterator[str]:
    """Serve a registry beside a broker that runs; yield the line that announces it. Raises StartError."""
    running = RunningRegistry(cluster, parse_registry_address(address))
    try:
        await running.start()
        yield make_registry_line(running.server.url)
        await running.server.stop()
    finally:
        running.server.close()
