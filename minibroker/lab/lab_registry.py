"""The schema registry of the lab: its application is asked by messages, in the place of HTTP."""

from __future__ import annotations

from typing import Any

from minibroker.testing.broker import Broker
from minibroker.testing.embedded.registry_verbs import RegistryVerbs
from minibroker.web.messages import Answer, Request


class LabRegistry(RegistryVerbs):
    """The registry of a broker, which no server serves."""

    async def start(self) -> None:
        """Make it: its application answers from now on."""
        self.get_or_make_running_registry()

    async def answer(self, request: Request) -> Answer:
        """Answer a request as the server would. Raises NotRunning."""
        return await self._running_registry.answer(request)


class LabBroker(Broker):
    """A broker with a registry."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, registry=True, **kwargs)

    def _make_registry(self, address_or_flag: bool | str) -> RegistryVerbs:
        return LabRegistry(self, None)

    async def send_request_to_registry(self, request: Request) -> Answer:
        """Answer a request to the registry. Raises NotRunning."""
        assert isinstance(self.registry, LabRegistry)
        return await self.registry.answer(request)
