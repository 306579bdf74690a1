"""What `serve` says once clients can connect: to a terminal, to a file, and to programs that wait for Apache Kafka.

Testcontainers and others wait for lines in the log of a container. These are Kafka's, of 3.x with ZooKeeper and with
KRaft, as kafka.server has them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from minibroker.cli.serving import InvalidOptions

if TYPE_CHECKING:
    from datetime import datetime

    from minibroker.broker.configs.settings import Settings

# By class: {node} is the id of the broker.
LINES = (
    (
        "kafka.server.BrokerLifecycleManager",
        "[BrokerLifecycleManager id={node}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING.",
    ),
    ("kafka.server.BrokerServer", "[BrokerServer id={node}] Transition from STARTING to STARTED"),
    ("kafka.server.KafkaServer", "[KafkaServer id={node}] started"),
    ("kafka.server.KafkaRaftServer", "[KafkaRaftServer nodeId={node}] Kafka Server started"),
)
ALL_ADDRESSES = ("", "0.0.0.0", "::")


class ListenerAnnouncement:
    """Prints the lines about what listens, each at once, also into a pipe, as the caller waits for them.

    They also make the ready file; with `as_kafka`, Kafka's lines follow the first of them. Raises InvalidOptions if
    there is no directory for the file.
    """

    def __init__(self, settings: Settings, as_kafka: bool, ready_file: str | None) -> None:
        self._settings, self._as_kafka, self._ready_file = settings, as_kafka, ready_file
        if ready_file is not None:
            directory = os.path.dirname(ready_file) or "."
            if not os.path.isdir(directory):
                raise InvalidOptions(f"--ready-file: there is no directory {directory}")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(ready_file)

    def __call__(self, listens: str, others: Mapping[str, str]) -> None:
        """Announce the listeners, and what else listens, by its name in the ready file. Raises OSError.

        Each line ends with an address.
        """
        if self._ready_file is not None:
            named = [f"{name} {line.rpartition(' ')[2]}" for name, line in others.items()]
            _write_ready_file(
                self._ready_file,
                "".join(f"{each}\n" for each in [*iterate_local_addresses(self._settings, listens), *named]),
            )
        own = make_log_lines_of_kafka_start(self._settings["node.id"]) if self._as_kafka else []
        print("\n".join([listens, *own, *others.values()]), flush=True)


def make_log_lines_of_kafka_start(node: int, now: datetime | None = None) -> list[str]:
    """Return the lines that Apache Kafka logs once it serves."""
    from datetime import datetime  # which other starts do not need

    now = datetime.now() if now is None else now
    time = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
    return [f"[{time}] INFO {text.format(node=node)} ({logger})" for logger, text in LINES]


def iterate_local_addresses(settings: Settings, announced_address: str) -> Iterator[str]:
    """Yield for each listener the address at which this machine reaches it; the advertised ones may be for others."""
    from minibroker.broker.configs.listeners import make_broker_listeners

    advertised = announced_address.rpartition(" ")[2].split(",")
    for listener, address in zip(make_broker_listeners(settings), advertised, strict=False):  # of the first node
        host = "127.0.0.1" if listener.host in ALL_ADDRESSES else listener.host
        port = listener.port or address.rpartition(":")[2]
        yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _write_ready_file(file: str, text: str) -> None:
    """Write the file so that whoever waits for it finds all of it."""
    with open(f"{file}.new", "w") as new:
        new.write(text)
    os.replace(new.name, file)
