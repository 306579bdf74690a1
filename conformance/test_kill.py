"""What was acknowledged is there after a kill -9, for every client, and the broker goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path

from conformance.clients import CLIENTS, Client, run
from conformance.conftest import Broker

AT_ONCE = 2
(QUICKEST,) = (client for client in CLIENTS if client.name == "franz-go")  # to start; it compares all records


def test_every_client_consumes_and_produces_after_a_kill(
    start_broker: Callable[[Path], AbstractContextManager[Broker]], tmp_path: Path, specifications: dict[str, str]
) -> None:
    with start_broker(tmp_path) as broker:

        def write(prefix: str) -> None:
            run_all("write", broker, prefix, ((client, client) for client in CLIENTS), specifications)

        def read(prefix: str, pairs: Iterable[tuple[Client, Client]]) -> None:
            run_all("read", broker, prefix, pairs, specifications)

        write("before")
        broker.kill()
        broker.start()
        read("before", [*zip(CLIENTS, CLIENTS, strict=True), *product([QUICKEST], CLIENTS)])
        write("after")
        read("after", product([QUICKEST], CLIENTS))


def run_all(
    action: str,
    broker: Broker,
    prefix: str,
    pairs: Iterable[tuple[Client, Client]],
    specifications: dict[str, str],
) -> None:
    """Has the first client of each pair do something with the topics of the second, two pairs at once."""
    with ThreadPoolExecutor(AT_ONCE) as workers:
        asked = [
            workers.submit(
                run, client, action, broker.bootstrap_servers, f"{prefix}-{writer.name}", specifications[writer.name]
            )
            for client, writer in pairs
        ]
    for each in asked:
        each.result()
