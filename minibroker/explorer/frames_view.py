"""The view of frames: the live list, and each frame with its bytes, its fields, its answer and what it changed.

A page asks once and then gets each new frame as a server-sent event. Nothing is added to the path of requests:
while a page is open, its feed looks at the journal ten times a second.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from shlex import quote
from struct import Struct
from typing import Any, Final, Protocol

from minibroker.explorer.answers_in_threads import make_answer_in_thread, read_in_thread_if_large
from minibroker.explorer.effects import describe_effects
from minibroker.explorer.saved_frames import FrameSource
from minibroker.explorer.trees import make_tree_of_parts
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.explaining.messages import explain_request, explain_response
from minibroker.protocol.explaining.parts import ExplainedPart
from minibroker.protocol.headers import find_response_version
from minibroker.protocol.legible import make_legible
from minibroker.protocol.records.formats import iterate_batches_in_any_format, iterate_records_in_any_format
from minibroker.testing.broker import Broker
from minibroker.testing.faults.engine import Faults
from minibroker.testing.faults.rules import WORDS
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.hosting import InterceptedHost
from minibroker.testing.seen.journal import Journal, JournalMark
from minibroker.testing.seen.subjects import GetTopicName, find_subjects, find_topic_name
from minibroker.web.messages import Answer
from minibroker.web.routes import Routes

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


class FrameFeed:
    """What one page has not seen yet."""

    def __init__(self, frames: FrameSource, get_topic_name: GetTopicName, after: int = 0) -> None:
        self._frames = frames
        self._name_of = get_topic_name
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
            rows.append(await read_in_thread_if_large(exchange, partial(make_frame_row, exchange, self._name_of)))
            if time.perf_counter() > until:
                break
        marks = [mark for mark in self._frames.marks if mark.number > self._marked]
        if marks:
            self._marked = marks[-1].number
        if not rows and not marks:
            return None
        return {"rows": rows, "marks": [make_mark_object(mark) for mark in marks], "oldest": self._frames.oldest}

    def _list_next_exchanges(self) -> list[Exchange]:
        """Return exchanges that were open when the page got them and have ended, then those that it has not got yet."""
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


def make_frame_row(exchange: Exchange, get_topic_name: GetTopicName) -> list[Any]:
    """Return the values of `COLUMNS` for a request."""
    topics, groups, transactional_ids = _list_subjects_of_exchange(exchange, get_topic_name)
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
    exchange: Exchange, get_topic_name: GetTopicName
) -> tuple[dict[str, list[int]], list[str], list[str]]:
    """Return the partitions by topic, the groups, and the transactional ids that a request names."""
    request = exchange.request
    if request is None:
        return {}, [], []  # a proxy passes requests that cannot be read here
    found = find_subjects(request, get_topic_name)
    topics = found.topics
    answer = exchange.answer if exchange.api_key is ApiKey.FETCH and not topics else None
    if answer is not None:
        topics = find_subjects(answer, get_topic_name).topics  # a fetch session names only what changes
    named = sorted(topics.items())[:MOST_SUBJECTS]
    return (
        {make_legible(topic): sorted(partitions)[:MOST_SUBJECTS] for topic, partitions in named},
        [make_legible(each, ID_CHARACTERS) for each in sorted(found.groups)[:MOST_SUBJECTS]],
        [make_legible(each, ID_CHARACTERS) for each in sorted(found.transactional_ids)[:MOST_SUBJECTS]],
    )


def make_mark_object(mark: JournalMark) -> dict[str, Any]:
    """Return a mark for JSON."""
    return mark._asdict() | {"text": make_legible(mark.text)}


MOST_BYTES: Final = 1 << 16  # of a request: nobody pastes more
MOST_ANSWER_BYTES: Final = 1 << 18  # which JSON has, too
LINE_DIGITS: Final = 96
MOST_COMMANDS: Final = 20

PYTHON = '''\
"""Sends {api} of version {version}, and prints the answer."""

import socket

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.explaining.messages import explain_response

frame = bytes.fromhex("""
{digits}
""")

with socket.create_connection(({host!r}, {port})) as connection:
    connection.sendall(frame)
    answer = connection.recv(4, socket.MSG_WAITALL)
    answer += connection.recv(int.from_bytes(answer, "big"), socket.MSG_WAITALL)

for depth, part in explain_response(answer, ApiKey.{key}, {version}).iterate_parts():
    print("  " * depth + part.name, part.value if part.value is not None else "", part.meaning)
'''


def make_texts_to_repeat_request(exchange: Exchange, servers: str, get_topic_name: GetTopicName) -> dict[str, str]:
    """Return what repeats a request, by its name: `hex`, `JSON`, `Python` and `kcat`, as far as there is one."""
    frame = SIZE.pack(len(exchange.request_bytes)) + exchange.request_bytes
    if len(frame) > MOST_BYTES:
        return {}
    found = {"hex": frame.hex()}
    if len(exchange.answer_bytes) <= MOST_ANSWER_BYTES:
        found["JSON"] = json.dumps(exchange.as_json(), indent=2, ensure_ascii=True)
    if isinstance(exchange.api_key, ApiKey):  # a proxy passes others, too
        found["Python"] = _write_python_code(exchange, frame, servers)
    commands, request = _KCAT.get(exchange.api_key), exchange.request
    if commands is not None and request is not None:
        found["kcat"] = "\n".join(commands(request, f"kcat -b {quote(servers)}", get_topic_name))
    return {name: text for name, text in found.items() if text}


def _write_python_code(exchange: Exchange, frame: bytes, servers: str) -> str:
    host, _, port = servers.partition(",")[0].rpartition(":")
    digits = frame.hex()
    lines = "\n".join(digits[at : at + LINE_DIGITS] for at in range(0, len(digits), LINE_DIGITS))
    return PYTHON.format(
        api=exchange.api,
        version=exchange.version,
        key=exchange.api_key.name,
        digits=lines,
        host=host.strip("[]"),
        port=port,
    )


def _write_metadata_commands(request: Any, kcat: str, get_topic_name: GetTopicName) -> Iterator[str]:
    names = [name for topic in request.topics or () if (name := find_topic_name(topic, get_topic_name))]
    yield from [f"{kcat} -L -t {quote(name)}" for name in names[:MOST_COMMANDS]] or [f"{kcat} -L"]


def _write_fetch_commands(request: Any, kcat: str, get_topic_name: GetTopicName) -> Iterator[str]:
    for topic in request.topics[:MOST_COMMANDS]:
        name = find_topic_name(topic, get_topic_name) or ""
        for each in topic.partitions[:MOST_COMMANDS] if name else ():
            yield f"{kcat} -C -t {quote(name)} -p {each.partition} -o {each.fetch_offset} -e"


def _write_list_offsets_commands(request: Any, kcat: str, get_topic_name: GetTopicName) -> Iterator[str]:
    for topic in request.topics[:MOST_COMMANDS]:
        for each in topic.partitions[:MOST_COMMANDS]:
            yield f"{kcat} -Q -t {quote(f'{topic.name}:{each.partition_index}:{each.timestamp}')}"


def _write_produce_commands(request: Any, kcat: str, get_topic_name: GetTopicName) -> Iterator[str]:
    for topic in request.topic_data[:MOST_COMMANDS]:
        name = find_topic_name(topic, get_topic_name) or ""
        for each in topic.partition_data[:MOST_COMMANDS] if name and not request.transactional_id else ():
            target, data = f"{kcat} -P -t {quote(name)} -p {each.index}", bytes(each.records or b"")
            with suppress(KafkaError):  # what is damaged cannot be written, and nobody pastes what is large
                for position, _ in iterate_batches_in_any_format(data):
                    records = iterate_records_in_any_format(data, position, limit_bytes=MOST_BYTES)
                    yield from (_make_produce_command(each, target) for each in islice(records, MOST_COMMANDS))


def _make_produce_command(record: Any, target: str) -> str:
    """Return a command that writes the record; kcat reads it from its input, and cannot write every byte."""
    key = "" if record.key is None else f" -k {_escape_for_shell(record.key)}"
    headers = "".join(f" -H {quote(f'{name}=')}{_escape_for_shell(value or b'')}" for name, value in record.headers)
    if record.value is None:
        return f"printf '' | {target}{key}{headers} -Z"
    return f"printf %b {_escape_for_shell(record.value)} | {target}{key}{headers}"


def _escape_for_shell(data: bytes) -> str:
    """Return bytes for a shell; those that are not printable ASCII in octal, as printf and bash read them."""
    if all(0x20 <= byte < 0x7F and byte != 0x5C for byte in data):
        return quote(data.decode())
    return "$'" + "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data) + "'"


_PLAIN: Final = frozenset(range(0x20, 0x7F)) - {0x27, 0x5C}
_KCAT: Final[dict[ApiKey, Callable[[Any, str, GetTopicName], Iterator[str]]]] = {
    ApiKey.METADATA: _write_metadata_commands,
    ApiKey.FETCH: _write_fetch_commands,
    ApiKey.LIST_OFFSETS: _write_list_offsets_commands,
    ApiKey.PRODUCE: _write_produce_commands,
}


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

    def get_topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it is known."""


def make_live_routes(
    broker: Broker | WatchedServer, get_topic_name: GetTopicName, closing_event: asyncio.Event
) -> Routes:
    """Return the routes of the frames view of a broker or a proxy."""
    return make_frame_routes(
        broker.journal, get_topic_name, closing_event, lambda: broker.bootstrap_servers, lambda: describe_state(broker)
    )


def make_frame_routes(
    frames: FrameSource,
    get_topic_name: GetTopicName,
    closing_event: asyncio.Event,
    get_bootstrap_servers: Callable[[], str],
    describe_state: DescribeState | None = None,
) -> Routes:
    """Return the routes of the frames view. `get_bootstrap_servers` returns HOST:PORT, for what repeats a request."""
    routes = Routes("/frames")

    @routes.get("/grammar")
    async def get_grammar() -> dict[str, Any]:
        """Return the columns of a row, and the words of a filter."""
        return {"columns": COLUMNS, "words": list_filter_words()}

    @routes.get("/stream")
    async def stream_frames(after: int = 0) -> Answer:
        """Return all frames after a number, then new ones as they come."""
        stream = iterate_events(FrameFeed(frames, get_topic_name, after), describe_state, closing_event)
        return Answer(stream, kind="text/event-stream; charset=utf-8", headers=NO_CACHE)

    @routes.get("/{number}")
    async def get_frame(number: int) -> Answer:
        """Return a frame with all that is known about it."""
        exchange = frames.get_exchange(number)
        if exchange is None:
            raise LookupError(f"there is no frame {number} (any more)")
        address = get_bootstrap_servers()

        def describe_frame() -> dict[str, Any]:
            return {
                "row": make_frame_row(exchange, get_topic_name),
                "refusals": exchange.refusals,
                "effects": describe_effects(exchange, get_topic_name),
                "copies": make_texts_to_repeat_request(exchange, address, get_topic_name),
                **explain_exchange(exchange),
            }

        return await make_answer_in_thread(describe_frame)

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
    """Return a frame with its size before it, as on the wire; only the beginning of a large one."""
    return SIZE.pack(len(frame)) + frame[:SHOWN_BYTES]
