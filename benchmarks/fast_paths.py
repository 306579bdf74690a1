"""What each fast path of a request brings: the row of it beside the same with the path put aside (`slower.py`)."""

from __future__ import annotations

from collections.abc import Callable

import exchanges
import groups
import programs
import servers
import slower
import wire
from report import Case, Sample, Section
from servers import Server, Target

SLOWER = str(programs.HERE / "slower.py")
THROTTLE_TIME_AT = 8  # of an answer to Metadata; it is no error code, but 0 as well
Measure = Callable[[Server], Sample]


def sections(seconds: float) -> list[Section]:
    """Two rows for each path: as it is, and without it."""
    produce = _produce(seconds)
    rows: list[tuple[str, Measure]] = [
        ("produce_template", produce),
        ("plain_produce", produce),
        ("commit_template", _commit(seconds)),
        ("lasting_answers", _metadata(seconds)),
        ("plain_fetch", _fetch(seconds)),
    ]
    cases = [case for path, measure in rows for case in _pair(path, measure)]
    return [Section("fast paths", "Fast paths: one connection, 16 in flight", exchanges.RATE_COLUMNS, cases)]


def _pair(path: str, measure: Measure) -> list[Case]:
    def as_it_is(target: Target) -> Sample:
        return measure(target.server)

    def put_aside(target: Target) -> Sample:
        if target.name != "minibroker":
            raise programs.Unavailable("only minibroker is known to have it")
        with servers.minibroker([SLOWER, path]) as server:
            measure(server)  # it is new, and imports what it needs
            return measure(server)

    assert path in slower.PATHS
    name = path.replace("_", " ")
    return [Case(f"{name}: with", as_it_is), Case(f"{name}: without", put_aside)]


def _pinged(server: Server, request: bytes, error_at: int, seconds: float) -> Sample:
    return exchanges.pinged(server, request, error_at, seconds, 1, 16)


def _produce(seconds: float) -> Measure:
    def measure(server: Server) -> Sample:
        with wire.topic(server) as topic:
            request = wire.produce_request(topic, wire.batch([b"x" * 100]))
            return _pinged(server, request, wire.produce_error_at(topic), seconds)

    return measure


def _commit(seconds: float) -> Measure:
    def measure(server: Server) -> Sample:
        with wire.topic(server) as topic:
            request = wire.commit_request(groups.new_group(server), topic, 1)
            return _pinged(server, request, wire.commit_error_at(topic, 1), seconds)

    return measure


def _metadata(seconds: float) -> Measure:
    def measure(server: Server) -> Sample:
        with wire.topic(server, 10) as topic:
            return _pinged(server, wire.metadata_request(topic), THROTTLE_TIME_AT, seconds)

    return measure


def _fetch(seconds: float) -> Measure:
    def measure(server: Server) -> Sample:
        with wire.topic(server) as topic:
            with wire.Client(server) as client:
                client.produce(topic, wire.batch([b"x" * 100]))
            return _pinged(server, wire.fetch_request(topic, 1000), wire.fetch_error_at(topic), seconds)

    return measure
