"""A registry with its server, beside a broker that may be stopped and started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.addresses import HostPort, is_loopback
from minibroker.registry.registry import Registry
from minibroker.registry.registry_api import RegistryApi
from minibroker.registry.registry_application import Observer, RegistryApplication
from minibroker.registry.registry_logins import BrokersUsers, tls_of
from minibroker.registry.registry_server import RegistryServer

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker


class RunningRegistry:
    """A registry, and its address."""

    def __init__(self, cluster: Callable[[], Broker], address: HostPort, observer: Observer | None = None) -> None:
        """`cluster` returns the broker that runs now. Raises StartError if the address is taken."""
        self._cluster = cluster
        self.registry = Registry(cluster)
        self.server = RegistryServer(address)
        self._application = RegistryApplication(
            RegistryApi(self.registry), BrokersUsers(cluster), observer, is_private=is_loopback(address.host)
        )

    async def start(self) -> None:
        """Serve, with the security of the broker's first listener. Raises StartError."""
        await self.server.start(self._application, tls_of(self._cluster()))
