"""A broker in a thread of the tests' own process: the ordinary suite asks it, and a debugger sees both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from minibroker.testing import Broker

DEFAULTS = {"listeners": "PLAINTEXT://127.0.0.1:0", "socket.busy.poll.us": "0"}  # others are a plain broker's


class BrokerInProcess:
    """A broker of the test kit, as tests use a broker that is a process."""

    def __init__(self, kit: Broker) -> None:
        self._kit = kit

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of its listeners; they stay the same."""
        (listeners,) = self._kit.ports.listeners.values()
        return ",".join(f"127.0.0.1:{each.port}" for each in listeners)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._kit.kill()

    def start(self) -> None:
        """Starts it again on the same data."""
        self._kit.restart()


@contextmanager
def broker_in_process(directory: Path, settings: Mapping[str, str]) -> Iterator[BrokerInProcess]:
    """A broker for the length of a block, with its data in a directory."""
    kit = Broker(settings, directory=directory)
    kit.defaults = DEFAULTS
    with kit:
        yield BrokerInProcess(kit)
