"""The clients inside: a row each, which the reader starts, stops and kills.

A stop is what a client does when its program ends: it leaves its group, or aborts its transaction. A kill cuts its
connections, as the death of its process does, and the broker finds out by its timeouts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal, TypeVar

from minibroker.client.asynchronous import AsyncClient
from minibroker.client.client_connection import NEWEST
from minibroker.client.client_errors import ErrorReaction, check_error_code, choose_error_reaction
from minibroker.client.cluster_client import Partition
from minibroker.client.connection_settings import ClientSettings
from minibroker.protocol.declare import Message
from minibroker.protocol.response_errors import collect_error_codes

Result = TypeVar("Result")
CoordinatorKind = Literal["group", "transaction"]

MOST_CLIENTS: Final = 50
TURN_SECONDS: Final = 1.0  # between two batches


class ClientState(StrEnum):
    """What a client does."""

    RUNS = "runs"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


class LabClient:
    """A client with a task of its own while it runs. `said` is what it did last, `count` how many records it had."""

    kind: ClassVar[str]

    def __init__(self, number: int, servers: str, topic: str, name: str) -> None:
        self.number, self.topic, self.name = number, topic, name
        self.client_id = f"{self.kind}-{number}"
        self.state, self.said, self.count = ClientState.STOPPED, "", 0
        self._servers = servers
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.client: AsyncClient

    def describe(self) -> dict[str, Any]:
        """Return the fields of the client's row on the page."""
        shown = ("number", "kind", "client_id", "topic", "name", "state", "said", "count")
        return {name: getattr(self, name) for name in shown}

    def start(self) -> None:
        """Start the client, unless it runs."""
        if self._task is None or self._task.done():
            self._stopping.clear()
            self.state, self.said = ClientState.RUNS, ""
            self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Let the client finish its round and `tear_down`; wait until it has."""
        if self._task is not None:
            self._stopping.set()
            await asyncio.wait([self._task])

    def kill(self) -> None:
        """Cut the client's connections, without `tear_down`."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self.state = ClientState.KILLED

    async def _run(self) -> None:
        """Connect and work in rounds until the client is stopped. An error ends it, and is kept for the page."""
        settings = {"bootstrap.servers": self._servers, "client.id": self.client_id}
        try:
            async with AsyncClient(ClientSettings(settings)) as self.client:
                await self.set_up()
                while not self._stopping.is_set():
                    await self.run_one_round()
                await self.tear_down()
            self.state = ClientState.STOPPED
        except Exception as error:  # whatever ends a client, its row says it
            self.state, self.said = ClientState.FAILED, str(error) or type(error).__name__

    async def set_up(self) -> None:
        """Prepare the first round, for example by joining a group."""

    async def run_one_round(self) -> None:
        """Write or read once, and wait for the next round."""
        raise NotImplementedError

    async def tear_down(self) -> None:
        """End the work cleanly after the last round, for example by leaving a group."""

    # --- for those that are built on it

    async def wait_for_next_round(self) -> None:
        """Wait for a second, or until the client is to stop."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def find_partitions(self) -> list[Partition]:
        """Return the partitions of the topic, which is created if there is none."""

        async def request_partitions() -> list[Partition]:
            (topic,) = (await self.client.fetch_metadata([self.topic], create=True)).topics
            check_error_code(topic.error_code, f"topic {self.topic}")
            return [(self.topic, each) for each in range(len(topic.partitions))]

        return await self.retry_until_done(request_partitions)

    async def retry_until_done(self, action: Callable[[], Awaitable[Result]]) -> Result:
        """Call `action` until it succeeds."""
        return await self.client.retry(action)

    async def send_request_to_coordinator(self, kind: CoordinatorKind, request: Message, highest: int = NEWEST) -> Any:
        """Return the coordinator's answer, after retries; errors that cannot be retried stay in it."""

        async def send_request() -> Any:
            node = await self.client.find_coordinator(kind, self.name)
            answer = await self.client.request(request, node, highest=highest)
            for code in collect_error_codes(answer):
                if choose_error_reaction(code) in (ErrorReaction.RETRY, ErrorReaction.FIND_COORDINATOR):
                    check_error_code(code, f"{kind} {self.name}")
            return answer

        return await self.retry_until_done(send_request)


class LabClients:
    """All clients of a lab, by their numbers."""

    def __init__(self, servers: Callable[[], str], kinds: Mapping[str, type[LabClient]]) -> None:
        self._servers, self._kinds = servers, kinds
        self._clients: dict[int, LabClient] = {}
        self._made = 0

    def describe_all(self) -> list[dict[str, Any]]:
        """Return the fields of each client's row on the page, in the order in which they were made."""
        return [each.describe() for each in self._clients.values()]

    def add(self, kind: str, topic: str, name: str = "") -> LabClient:
        """Make a client and start it. Raises ValueError, LookupError."""
        if kind not in self._kinds:
            raise LookupError(f"there is no client of the kind {kind}, but {', '.join(self._kinds)}")
        if not topic:
            raise ValueError("a client needs a topic")
        if len(self._clients) >= MOST_CLIENTS:
            raise ValueError(f"the lab has {MOST_CLIENTS} clients at most: remove one")
        self._made += 1
        made = self._clients[self._made] = self._kinds[kind](self._made, self._servers(), topic, name)
        made.start()
        return made

    def get(self, number: int) -> LabClient:
        """Return a client. Raises LookupError."""
        if number not in self._clients:
            raise LookupError(f"there is no client {number} (any more)")
        return self._clients[number]

    def remove(self, number: int) -> None:
        """Kill a client and forget it. Raises LookupError."""
        self.get(number).kill()
        del self._clients[number]

    def remove_all(self) -> None:
        """Kill and forget all clients."""
        for number in list(self._clients):
            self.remove(number)
