"""What a share group costs: records that one member fetches and acknowledges, over one connection.

The member speaks by hand, in this process, so its rate is below the server's; the server's CPU time is what counts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from statistics import median

import wire
from machine import ROOT, cpu_seconds
from programs import Failed
from report import Case, Column, Sample, Section
from servers import Target

sys.path.insert(0, str(ROOT))

from conformance.wire.connection import Connection, ConnectionClosed  # noqa: E402
from conformance.wire.requests import metadata_of, repeated  # noqa: E402
from conformance.wire.share_members import Member, Said, configure  # noqa: E402
from minibroker.protocol.messages.groups import FindCoordinatorRequest  # noqa: E402
from tests.clients.share_requests import ACCEPT, REJECT  # noqa: E402

RECORD_BYTES = 100
WARM_UP_S = {"kafka": 3.0}  # its JVM has not compiled this yet
RATE_AT_MOST = 6000  # fetches in a second: so many have records
ENOUGH_BYTES = 100 << 20
COLUMNS = (
    Column("rate", "records/s", higher_is_better=True),
    Column("p50_us", "p50 of a fetch, us"),
    Column("fetch_us", "server us a fetch"),
    Column("record_us", "server us a record"),
)


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each."""
    rows: list[tuple[str, int, Sequence[int], bool]] = [
        ("1 record, with the next fetch", 1, [ACCEPT], False),
        ("100 records, with the next fetch", 100, [ACCEPT], False),
        ("100 records, by a request of its own", 100, [ACCEPT], True),
        ("100 records, accepted and rejected in turn", 100, [ACCEPT, REJECT] * 50, False),
    ]
    cases = [Case(name, lambda target, row=row: _measure(target, *row, seconds)) for name, *row in rows]
    return [Section("share", "Share groups: ShareFetch v2 of a batch, acknowledged; records of 100 B", COLUMNS, cases)]


def _measure(target: Target, size: int, types: Sequence[int], apart: bool, seconds: float) -> Sample:
    server = target.server
    warm_up_s = WARM_UP_S.get(target.name, 0.1)
    count = int(min(RATE_AT_MOST * (warm_up_s + seconds), ENOUGH_BYTES / (size * RECORD_BYTES)))
    with wire.topic(server) as topic, wire.Client(server) as client:
        request = wire.produce_request(topic, wire.batch([b"x" * RECORD_BYTES] * size))
        client.exchange([request] * count, wire.produce_error_at(topic))
        with Connection(f"{server.host}:{server.port}") as connection:
            member = _joined(connection, topic)
            reading = _Reading(member, size, types, apart)
            reading.run(warm_up_s)
            cpu_before, begun_at = cpu_seconds(server.pid), time.perf_counter()
            taken = reading.run(seconds)
            elapsed = time.perf_counter() - begun_at
            server_us = (cpu_seconds(server.pid) - cpu_before) / len(taken) * 1e6
            member.acknowledge(share_session_epoch=-1)
            member.beat(member_epoch=-1)
    return {
        "rate": len(taken) * size / elapsed,
        "p50_us": median(taken) * 1e6,
        "fetch_us": server_us,
        "record_us": server_us / size,
    }


def _joined(connection: Connection, topic: str) -> Member:
    """A member of a new group that has the topic's partition. Raises Failed if the server has none to give."""
    coordinator = FindCoordinatorRequest(key=topic)  # Kafka has to be asked for it first
    try:
        repeated(lambda: connection.ask(coordinator, 3).error_code, lambda code: code == 0)
        configure(connection, topic, auto_offset_reset="earliest")
        member = Member(connection, topic, topic, metadata_of(connection, topic).topic_id)
        member.join()
    except (AssertionError, ConnectionClosed) as error:
        raise Failed(f"no member joins a share group: {error!r}") from None
    return member


class _Reading:
    """A member that reads on, and what it has still to acknowledge."""

    def __init__(self, member: Member, size: int, types: Sequence[int], apart: bool) -> None:
        self._member = member
        self._size = size
        self._types = types
        self._apart = apart
        ((first, last, _),) = member.fetch_some(max_records=size, batch_size=size)
        self._said: Said = first, last, types

    def run(self, seconds: float) -> list[float]:
        """Fetch and acknowledge; return the seconds that each fetch took. Raises Failed."""
        taken = []
        end = time.perf_counter() + seconds
        while (begun_at := time.perf_counter()) < end:
            if self._apart and self._member.outcome(self._said):
                raise Failed("an acknowledgement was refused")
            before = () if self._apart else (self._said,)
            found = self._member.fetch(*before, max_records=self._size, batch_size=self._size)
            taken.append(time.perf_counter() - begun_at)
            if not found:
                raise Failed("no more records")
            ((first, last, _),) = found
            if last - first + 1 != self._size:
                raise Failed(f"{last - first + 1} records came together")
            self._said = first, last, self._types
        return taken
