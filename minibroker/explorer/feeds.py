"""The live stream of frames: what a page has not seen of the journal yet, in small portions.

A page asks once and is told everything from then on, as server-sent events. Nothing is added to the path of requests:
while a page is open, its feed looks at the journal ten times a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from minibroker.explorer.answers_in_threads import read_in_thread
from minibroker.explorer.saved_frames import FrameSource
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.legible import make_legible
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.journal import JournalMark
from minibroker.testing.seen.subjects import NameOf, find_subjects

TICK_SECONDS: Final = 0.1
STATE_SECONDS: Final = 1.0
SLICE_SECONDS: Final = 0.005  # of the broker's loop at a time
PORTION: Final = 500  # rows
ID_CHARACTERS: Final = 200
COLUMNS: Final = (
    *("number", "api", "version", "client_id", "node", "connection", "started_ms", "duration_ms", "outcome"),
    *("errors", "faults", "request_bytes", "answer_bytes", "topics", "groups", "transactional_ids", "software"),
    *("user", "mechanism"),
)
"""What the values of a row are, in their order."""

DescribeState = Callable[[], dict[str, Any]]


class FrameFeed:
    """What one page has not seen yet."""

    def __init__(self, frames: FrameSource, name_of: NameOf, after: int = 0) -> None:
        self._frames = frames
        self._name_of = name_of
        self._last = after
        self._marked = 0
        self._open: dict[int, Exchange] = {}

    async def take_next_portion(self) -> dict[str, Any] | None:
        """Return the next rows and marks, or None if there are none. It holds the loop for about 5 ms at most."""
        until = time.perf_counter() + SLICE_SECONDS
        rows = []
        for exchange in self._list_next_exchanges():
            if exchange.outcome == "open":
                self._open[exchange.number] = exchange
            else:
                self._open.pop(exchange.number, None)
            self._last = max(self._last, exchange.number)
            rows.append(await read_in_thread(exchange, partial(make_frame_row, exchange, self._name_of)))
            if time.perf_counter() > until:
                break
        marks = [mark for mark in self._frames.marks if mark.number > self._marked]
        if marks:
            self._marked = marks[-1].number
        if not rows and not marks:
            return None
        return {"rows": rows, "marks": [make_mark_object(mark) for mark in marks], "oldest": self._frames.oldest}

    def _list_next_exchanges(self) -> list[Exchange]:
        """Return what has ended since it was told, then what was not told yet."""
        ended = [each for each in self._open.values() if each.outcome != "open"]
        return [*ended[:PORTION], *self._frames.list_exchanges_after(self._last, PORTION)]


async def iterate_events(
    feed: FrameFeed, describe_state: DescribeState | None, closing_event: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield server-sent events until the server closes: `frames` as they come, and `describe_state` each second."""
    told_at = -STATE_SECONDS
    while not closing_event.is_set():
        now = time.monotonic()
        if describe_state is not None and now - told_at >= STATE_SECONDS:
            told_at = now
            yield encode_event("state", describe_state())
        portion = await feed.take_next_portion()
        if portion is not None:
            yield encode_event("frames", portion)
            await asyncio.sleep(0)
        else:
            await asyncio.sleep(TICK_SECONDS)


def encode_event(name: str, value: Any) -> bytes:
    """Return a server-sent event. JSON has no line breaks."""
    return f"event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def make_frame_row(exchange: Exchange, name_of: NameOf) -> list[Any]:
    """Return the values of `COLUMNS` for a request."""
    topics, groups, transactional_ids = _list_subjects_of_exchange(exchange, name_of)
    return [
        exchange.number,
        exchange.api,
        exchange.version,
        None if exchange.client_id is None else make_legible(exchange.client_id, ID_CHARACTERS),
        exchange.node_id,
        exchange.connection,
        exchange.started_ms,
        exchange.duration_ms,
        exchange.outcome,
        exchange.errors,
        [make_legible(fault) for fault in exchange.faults],
        len(exchange.request_bytes),
        len(exchange.answer_bytes),
        topics,
        groups,
        transactional_ids,
        exchange.software,
        None if exchange.user is None else make_legible(exchange.user, ID_CHARACTERS),
        exchange.mechanism,
    ]


MOST_SUBJECTS: Final = 20  # of a row; a request may name thousands


def _list_subjects_of_exchange(
    exchange: Exchange, name_of: NameOf
) -> tuple[dict[str, list[int]], list[str], list[str]]:
    request = exchange.request
    if request is None:
        return {}, [], []  # a proxy passes requests that cannot be read here
    found = find_subjects(request, name_of)
    topics = found.topics
    answer = exchange.answer if exchange.api_key is ApiKey.FETCH and not topics else None
    if answer is not None:
        topics = find_subjects(answer, name_of).topics  # a fetch session names only what changes
    named = sorted(topics.items())[:MOST_SUBJECTS]
    return (
        {make_legible(topic): sorted(partitions)[:MOST_SUBJECTS] for topic, partitions in named},
        [make_legible(each, ID_CHARACTERS) for each in sorted(found.groups)[:MOST_SUBJECTS]],
        [make_legible(each, ID_CHARACTERS) for each in sorted(found.transactional_ids)[:MOST_SUBJECTS]],
    )


def make_mark_object(mark: JournalMark) -> dict[str, Any]:
    """Return a mark for JSON."""
    return mark._asdict() | {"text": make_legible(mark.text)}
