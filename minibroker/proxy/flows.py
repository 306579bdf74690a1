"""Files of exchanges: a line of JSON for each request and its answer, with both frames as hex.

The first line says what the file is. A file that the journal of a test has saved is read, too. As in the journal,
passwords, tokens and the proofs of a login are left out.

They are written in a thread, so that the disk never holds up a request. It only writes, after it has waited a moment
for more: it would share the interpreter with the loop while it formats, and to be woken for each exchange would cost
more than the writing. But large exchanges it formats in pieces. What waits to be written is bounded: if the disk is
slower than the clients, exchanges are left out, and counted.
"""

from __future__ import annotations

import contextlib
import json
import threading
from binascii import hexlify
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Final, NamedTuple, cast

from minibroker import __version__
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.legible import make_legible
from minibroker.proxy.requests import START, get_known_api, read_client_id
from minibroker.testing.seen.exchange import Exchange

WAITING_BYTES: Final = 64 << 20
GATHERING_S: Final = 0.05  # from the first exchange to the write
GATHERED_BYTES: Final = 1 << 20  # after which the write is not put off any longer

LARGE_BYTES: Final = 256 << 10  # of the frames of an exchange

FormatExchange = Callable[[Exchange, str], Iterable[bytes]]
"""Returns the pieces of what a file has of an exchange with the node at this address. A thread may make them."""
KIND: Final = "minibroker flows"
FORMAT: Final = 1
END: Final = b"}\n"
PIECE_BYTES: Final = 256 << 10  # of a frame
LONGEST_LINE_BYTES: Final = 512 << 20


class WaitingBytes(NamedTuple):
    """What waits to be written, and about how many bytes that is."""

    pieces: Iterable[bytes]
    size_bytes: int


class ExchangeRecording:
    """A file that is being written. `left_out` counts exchanges."""

    def __init__(self, file: BinaryIO, head: bytes, format: FormatExchange) -> None:
        """Begin to write to an open file, which belongs to the caller. Raises OSError."""
        self._file = file
        self._file.write(head)
        self._format = format
        self._queue: SimpleQueue[WaitingBytes | None] = SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._is_enough = threading.Event()
        self.left_out = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._write_exchanges, name="minibroker-recording", daemon=True)
        self._thread.start()

    def add_exchange(self, exchange: Exchange, server: str) -> None:
        """Queue an exchange for the file, or leave it out if the disk is too slow or has failed."""
        if self.failure is not None or self._waiting_bytes > WAITING_BYTES:
            self.left_out += 1
            return
        pieces = self._format(exchange, server)
        if exchange.size_bytes > LARGE_BYTES:
            waiting = WaitingBytes(pieces, exchange.size_bytes)
        else:
            data = b"".join(pieces)
            waiting = WaitingBytes((data,), len(data))
        with self._lock:
            self._waiting_bytes += waiting.size_bytes
        self._queue.put(waiting)
        if self._waiting_bytes > GATHERED_BYTES:
            self._is_enough.set()

    def close(self) -> None:
        """Write the queued exchanges, and close. Raises OSError if something could not be written."""
        self._queue.put(None)
        self._is_enough.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _write_exchanges(self) -> None:
        """Write queued exchanges until `close`, in the recording's own thread."""
        is_last = False
        while not is_last:
            waiting = [self._queue.get()]
            self._is_enough.wait(GATHERING_S)
            self._is_enough.clear()
            with contextlib.suppress(Empty):
                while True:
                    waiting.append(self._queue.get_nowait())
            is_last = None in waiting
            self._write_waiting_bytes([each for each in waiting if each is not None])

    def _write_waiting_bytes(self, waiting_bytes: list[WaitingBytes]) -> None:
        """Write exchanges to the file; keep an error for `close`, and write no more after it."""
        try:
            if self.failure is None:
                self._file.writelines(piece for each in waiting_bytes for piece in each.pieces)
                self._file.flush()
        except OSError as error:
            self.failure = error
        with self._lock:
            self._waiting_bytes -= sum(each.size_bytes for each in waiting_bytes)


class FlowError(ValueError):
    """A file that has no exchanges, or a line that is none; the message is one line."""


def encode_file_header(upstream: str) -> bytes:
    """Return the first line of a file of exchanges."""
    return (
        b"{"
        + _encode_json_members({"kind": KIND, "format": FORMAT, "minibroker": __version__, "upstream": upstream})
        + END
    )


def encode_exchange(exchange: Exchange, server: str) -> bytes:
    """Return the line of an exchange with the node at this address."""
    return b"".join(encode_exchange_in_pieces(exchange, server))


def encode_exchange_in_pieces(exchange: Exchange, server: str) -> Iterator[bytes]:
    """Yield the line of an exchange in pieces, as its frames may be large."""
    yield _encode_fields_without_frames(exchange, server)
    for name, frame in (("request_hex", exchange.request_bytes), ("answer_hex", exchange.answer_bytes)):
        if frame:
            yield f',"{name}":"'.encode()
            yield from (hexlify(frame[at : at + PIECE_BYTES]) for at in range(0, len(frame), PIECE_BYTES))
            yield b'"'
    yield END


def _encode_fields_without_frames(exchange: Exchange, server: str) -> bytes:
    """Return the beginning of an exchange's line: all fields but the frames."""
    # Not by `json`, which is slow for many small values, and would look at each character of frames.
    origin = (exchange.api, exchange.version, exchange.client_id, exchange.node_id, exchange.connection)
    parts = [b'{"number":%d,%b' % (exchange.number, _encode_client_and_server(*origin, server, exchange.software))]
    parts.append(b',"started_ms":%d,"outcome":"%b"' % (exchange.started_ms, exchange.outcome.encode()))
    if exchange.duration_ms is not None:
        parts.append(b',"duration_ms":%.3f' % exchange.duration_ms)
    if exchange.ended_before is not None:
        parts.append(b',"ended_before":%d' % exchange.ended_before)
    for name, words in (("errors", exchange.errors), ("faults", exchange.faults)):
        if words:
            parts.append(b"," + _encode_json_members({name: words}))
    return b"".join(parts)


@lru_cache(1000)
def _encode_client_and_server(
    api: str, version: int, client_id: str | None, node: int, connection: str, server: str, software: str
) -> bytes:
    """Return the JSON fields that all requests of an API on a connection have in common."""
    names = {"client_id": client_id, "connection": connection, "server": server, "software": software}
    values = {"api": api, "version": version, "node": node}
    return _encode_json_members(values | {name: value for name, value in names.items() if value})


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """Yield the exchanges of a file, in its order. Raises FlowError, OSError."""
    with open(path, "rb") as file:
        lines = iter(lambda: file.readline(LONGEST_LINE_BYTES), b"")
        yield from (exchange for exchange, _ in parse_exchanges(lines, str(path)))


def parse_exchanges(lines: Iterable[bytes], name: str) -> Iterator[tuple[Exchange, str]]:
    """Yield the exchanges of a file's lines, each with the address of the node, if it is known. Raises FlowError."""
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise ValueError("it is no object")
            if values.get("kind") != KIND:
                yield parse_exchange(values), make_legible(str(values.get("server", "")))
            elif values.get("format") != FORMAT:
                raise ValueError(f"its format is {values.get('format')}, and only {FORMAT} is known")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise FlowError(f"{name}, line {number}: {_format_reason(error)}") from None


def parse_exchange(values: dict[str, Any]) -> Exchange:
    """Return the exchange that a line describes. Raises ValueError, KeyError, TypeError, OverflowError."""
    frame, answer = bytes.fromhex(values["request_hex"]), bytes.fromhex(values.get("answer_hex", ""))
    if len(frame) < START.size:
        raise ValueError("its request has no header")
    key, version, correlation_id = START.unpack_from(frame)
    exchange = Exchange(int(values["number"]), cast(ApiKey, get_known_api(key)), version, correlation_id, frame)
    exchange.answer_bytes = answer
    exchange.client_id = read_client_id(memoryview(frame))
    exchange.node_id = int(values.get("node", -1))
    exchange.connection = make_legible(str(values.get("connection", "")))
    exchange.software = make_legible(str(values.get("software", "")))
    exchange.user, exchange.mechanism = (_make_legible_or_none(values.get(name)) for name in ("user", "mechanism"))
    exchange.started_ms = int(values.get("started_ms", 0))
    exchange.duration_ms = None if values.get("duration_ms") is None else _check_duration_ms(values["duration_ms"])
    exchange.ended_before = None if values.get("ended_before") is None else int(values["ended_before"])
    exchange.outcome = make_legible(str(values.get("outcome", "answered")))
    exchange.errors, exchange.refusals, exchange.faults = (
        tuple(make_legible(str(each)) for each in values.get(name, ())) for name in ("errors", "refusals", "faults")
    )
    return exchange


def _make_legible_or_none(value: Any) -> str | None:
    return None if value is None else make_legible(str(value))


def _check_duration_ms(number: Any) -> float:
    if not isfinite(number):
        raise ValueError(f"it took {number} ms")
    return float(number)


def _encode_json_members(values: dict[str, Any]) -> bytes:
    """Return a JSON object without its braces."""
    return json.dumps(values, separators=(",", ":")).encode()[1:-1]


def _format_reason(error: Exception) -> str:
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)
