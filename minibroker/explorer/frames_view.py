"""The view of frames: the live list, and each frame with its bytes, its fields, its answer and what it changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, Protocol

from minibroker.explorer.answers_in_threads import make_answer_in_thread
from minibroker.explorer.copies import make_copyable_texts
from minibroker.explorer.effects import list_effects
from minibroker.explorer.feeds import COLUMNS, DescribeState, FrameFeed, iterate_events, make_frame_row
from minibroker.explorer.saved_frames import FrameSource
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.explaining.messages import explain_request, explain_response
from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.headers import find_response_version
from minibroker.testing.broker import Broker
from minibroker.testing.faults.engine import Faults
from minibroker.testing.faults.rules import WORDS
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.hosting import InterceptedHost
from minibroker.testing.seen.journal import Journal
from minibroker.testing.seen.subjects import NameOf
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

SIZE: Final = Struct(">i")
SHOWN_BYTES: Final = 16 << 20  # of a frame
SHORTEST_HEADER_BYTES: Final = 8  # of an answer's frame, which those to ApiVersions have in all versions
# What a filter may say beside the words with which a fault is matched.
OWN_WORDS: Final = {
    "error": "The name of an error in the answer.",
    "outcome": "open, answered, unanswered or lost.",
    "fault": "Part of the name of a fault that struck.",
    "connection": "The address of the client.",
}
UNKNOWN_HERE: Final = ("where",)  # a function
NO_CACHE: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}


def list_filter_words() -> dict[str, str]:
    """Return the words of a filter with their meanings: those of the test kit's faults and of its journal."""
    matching = {word: said.meaning for word, (_, said) in WORDS.items() if said.table == "match"}
    return {word: text for word, text in matching.items() if word not in UNKNOWN_HERE} | OWN_WORDS


class WatchedServer(InterceptedHost, Protocol):
    """A broker or a proxy whose frames are shown."""

    @property
    def journal(self) -> Journal:
        """Return its journal."""

    @property
    def faults(self) -> Faults:
        """Return its faults."""

    @property
    def bootstrap_servers(self) -> str:
        """Return HOST:PORT for clients."""

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it is known."""


def make_live_routes(broker: Broker | WatchedServer, name_of: NameOf, closing_event: asyncio.Event) -> Routes:
    """Return the paths of the view of a broker or a proxy."""
    return make_frame_routes(
        broker.journal, name_of, closing_event, lambda: broker.bootstrap_servers, lambda: describe_state(broker)
    )


def make_frame_routes(
    frames: FrameSource,
    name_of: NameOf,
    closing_event: asyncio.Event,
    servers: Callable[[], str],
    state: DescribeState | None = None,
) -> Routes:
    """Return the paths of the view. `servers` is HOST:PORT for the copies of a frame."""
    routes = Routes("/frames")

    @routes.get("/grammar")
    async def get_grammar() -> dict[str, Any]:
        """Return the columns of a row, and the words of a filter."""
        return {"columns": COLUMNS, "words": list_filter_words()}

    @routes.get("/stream")
    async def stream_frames(after: int = 0) -> Answer:
        """Return all frames after a number, then new ones as they come."""
        stream = iterate_events(FrameFeed(frames, name_of, after), state, closing_event)
        return Answer(stream, kind="text/event-stream; charset=utf-8", headers=NO_CACHE)

    @routes.get("/{number}")
    async def get_frame(number: int) -> Answer:
        """Return a frame with all that is known about it."""
        exchange = frames.get_exchange(number)
        if exchange is None:
            raise LookupError(f"there is no frame {number} (any more)")
        address = servers()

        def said() -> dict[str, Any]:
            return {
                "row": make_frame_row(exchange, name_of),
                "refusals": exchange.refusals,
                "effects": list_effects(exchange, name_of),
                "copies": make_copyable_texts(exchange, address, name_of),
                **explain_exchange(exchange),
            }

        return await make_answer_in_thread(said)

    return routes


def describe_state(broker: Broker | WatchedServer) -> dict[str, Any]:
    """Return what the page always shows: the time, and whether the broker is up."""
    clock = broker.moving_clock
    return {
        "now_ms": clock.wall_ms(),
        "frozen": clock.frozen,
        "running": broker.is_running,
        "seen": broker.journal.seen,
        "journal": broker.journal.is_on,
        "faults": len(broker.faults.all()),
    }


def explain_exchange(exchange: Exchange) -> dict[str, Any]:
    """Return the trees of a request and its answer. This may take long for large frames: run it in a thread."""
    request = _prepend_size(exchange.request_bytes)
    answer = _prepend_size(exchange.answer_bytes)
    return {
        "title": f"{exchange.api} version {exchange.version}",
        "request": make_tree_of_parts(explain_request(request), request),
        "answer": make_tree_of_parts(_explain_answer(exchange, answer), answer) if exchange.answer_bytes else None,
    }


def _explain_answer(exchange: Exchange, answer: bytes) -> ExplainedPart:
    """Return the tree of an answer; one of an API that is not known here is only bytes."""
    if exchange.api_key not in ApiKey.__members__.values():
        return ExplainedPart("response", "frame", 0, len(answer), problem=f"there is no {exchange.api}")
    version = find_response_version(exchange.api_key, exchange.version, answer, SHORTEST_HEADER_BYTES)
    return explain_response(answer, exchange.api_key, version)


def _prepend_size(frame: bytes) -> bytes:
    """Return a frame with its size, as on the wire; of a large one the beginning."""
    return SIZE.pack(len(frame)) + frame[:SHOWN_BYTES]
