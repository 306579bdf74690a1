"""Sends the requests of recorded exchanges to another cluster, and compares the answers.

Each recorded connection becomes one of its own, to the node with the same id if there is one, else to the bootstrap
server. A request is sent once all answers have come that the client had when it sent it; so what ran at the same time
does so again. Requests of logins are left out: the replay logs in by itself.

Ids that a cluster chooses (of topics, members, producers, fetch sessions) differ by nature. Where an answer names one
in the place of another, later requests name that one, too.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from minibroker.client.asynchronous import AsyncClient, LoopNetwork
from minibroker.client.client_errors import FAILURES
from minibroker.client.connection_settings import Address, ClientSettings
from minibroker.client.opening import negotiate_and_authenticate
from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.declare import Struct
from minibroker.protocol.fields import Field, list_declared_fields
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.legible import make_legible
from minibroker.protocol.primitives import MalformedMessage, format_uuid
from minibroker.protocol.records.batch import MAGIC, set_checksum
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.proxy.requests import is_answered, is_known_version
from minibroker.quantities import format_count
from minibroker.testing.seen.exchange import Exchange, decode_answer

# Which ids are of one kind, under all names that messages have for them.
IDENTITIES: Final = {
    "topic_id": "topic",
    "member_id": "member",
    "leader": "member",
    "session_id": "session",
    "producer_id": "producer",
}
# What differs between any two clusters, or any two moments.
VOLATILE: Final = frozenset(
    {
        *("throttle_time_ms", "host", "port", "cluster_id", "client_instance_id", "session_lifetime_ms"),
        *("log_append_time_ms", "issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms", "auth_bytes"),
    }
)
MOST_DIFFERENCES: Final = 20  # of an answer
SHOWN_CHARACTERS: Final = 60
PRODUCER_POSITION: Final = slice(43, 51)  # of the id in a batch
LOGIN: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
LEAVING: Final = "lost"  # the client did not wait for the answer


class ClusterIdentities:
    """The ids of the new cluster by those of the recorded one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], Any] = {}

    def learn_new_id(self, name: str, before: Any, after: Any) -> bool:
        """Learn which id replaces a recorded one. Return False if fields of this name have no ids."""
        kind = IDENTITIES.get(name)
        if kind is None or not before or not after:
            return False
        self._known[kind, before] = after
        return True

    def translate_request(self, exchange: Exchange) -> bytes:
        """Return the frame of a request with the ids of the new cluster."""
        key, version, frame = exchange.api_key, exchange.version, exchange.request_bytes
        if not self._known or not is_known_version(key, version):
            return frame
        try:
            _, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
            request, _ = get_request_class(key).decode_from(frame, version, position)
        except MalformedMessage:
            return frame
        return frame[:position] + request.encode(version) if self._translate_struct(request) else frame

    def _translate_struct(self, struct: Any) -> bool:
        """Replace ids in a struct and in those below it. Return whether there were any."""
        is_translated = False
        for field in _list_fields(struct):
            value = getattr(struct, field.name)
            new = self._find_new_id(field.name, value)
            if new is not None:
                setattr(struct, field.name, new)
                is_translated = True
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, Struct):
                    is_translated = self._translate_struct(each) or is_translated
        return is_translated

    def _find_new_id(self, name: str, value: Any) -> Any:
        """Return the id, or the batches, in place of those of the recorded cluster; None if nothing changes."""
        if name == "records" and value:
            return self._translate_producers(bytes(value))
        return self._known.get((IDENTITIES[name], value)) if name in IDENTITIES else None

    def _translate_producers(self, data: bytes) -> bytes | None:
        """Return batches with the new ids of their producers, or None if there are none."""
        changed, is_changed = bytearray(data), False
        for position, header in iterate_batches_in_any_format(data):
            if header.magic == MAGIC:
                at = slice(position + PRODUCER_POSITION.start, position + PRODUCER_POSITION.stop)
                new = self._known.get(("producer", int.from_bytes(data[at], signed=True)))
                if new is not None:
                    changed[at] = new.to_bytes(8, signed=True)
                    set_checksum(changed, position, header.size_bytes)
                    is_changed = True
        return bytes(changed) if is_changed else None


def list_differences(exchange: Exchange, answer: bytes, identities: ClusterIdentities) -> list[str]:
    """Return a line for each field of an answer that is not as it was recorded, and learn ids."""
    if answer == exchange.answer_bytes:
        return []
    if not is_known_version(exchange.api_key, exchange.version):
        return [f"other bytes: {len(answer)} in the place of {len(exchange.answer_bytes)}"]
    before = exchange.answer
    try:
        after = decode_answer(exchange.api_key, exchange.version, answer)
    except MalformedMessage as error:
        return [f"an answer that cannot be read: {error}"]
    if before is None:
        return ["the recorded answer cannot be read"]
    return list(_compare_structs(before, after, "", identities.learn_new_id))[:MOST_DIFFERENCES]


def _list_fields(struct: Struct) -> tuple[Field, ...]:
    """Return the declared fields of a struct."""
    kind: type = type(struct)
    return tuple(list_declared_fields(kind))


LearnIdentity = Callable[[str, Any, Any], bool]


def _compare_structs(before: Any, after: Any, path: str, learn_new_id: LearnIdentity) -> Iterator[str]:
    """Yield a line for each field that differs, in structs inside as well; learn ids."""
    for field in _list_fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.name not in VOLATILE:
            yield from _compare_field_values(
                old, new, f"{path}.{field.name}" if path else field.name, field.name, learn_new_id
            )


def _compare_field_values(old: Any, new: Any, path: str, name: str, learn_new_id: LearnIdentity) -> Iterator[str]:
    """Yield a line for each difference in the value of the field at `path`; learn ids."""
    if isinstance(old, Struct) and isinstance(new, Struct):
        yield from _compare_structs(old, new, path, learn_new_id)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _compare_field_values(one, other, f"{path}[{index}]", name, learn_new_id)
        if len(old) != len(new):
            yield f"{path}: {format_count(len(new), 'item')} in the place of {len(old)}"
    elif old != new and not learn_new_id(name, old, new):
        yield f"{path}: {_format_value(new)} in the place of {_format_value(old)}"


def _format_value(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes" if len(value) != 16 else format_uuid(bytes(value))
    return make_legible(str(value), SHOWN_CHARACTERS)


_SIZE: Final = struct.Struct(">i")


class ReplayedRequest(NamedTuple):
    """A request that was sent again. `problem` says why there is no answer; without one, `differences` has lines."""

    exchange: Exchange
    differences: list[str]
    problem: str = ""
    is_skipped: bool = False


class ExchangeReplay:
    """A replay to the cluster of a client's settings."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._identities = ClusterIdentities()
        self._nodes: Mapping[int, Address] = {}
        self._lines: dict[str, RawConnection] = {}

    async def replay_exchanges(self, exchanges: Iterable[Exchange]) -> AsyncIterator[ReplayedRequest]:
        """Send all requests, and yield what came of each, in their order. Raises ClientError, OSError."""
        self._nodes = await _fetch_node_addresses(self._settings)
        running: list[
            tuple[float, asyncio.Task[ReplayedRequest]]
        ] = []  # by the number of the request that waits for it
        try:
            for exchange in sorted(exchanges, key=lambda each: each.number):
                while running and (before := min(running, key=lambda each: each[0]))[0] <= exchange.number:
                    running.remove(before)
                    yield await before[1]
                running.append((_get_number_after_end(exchange), asyncio.create_task(self._replay_exchange(exchange))))
                await asyncio.sleep(0)  # so that its bytes are written before those of the next one
            for _, task in sorted(running, key=lambda each: each[0]):
                yield await task
        finally:
            for _, task in running:
                task.cancel()
            for line in self._lines.values():
                line.close()

    async def _replay_exchange(self, exchange: Exchange) -> ReplayedRequest:
        """Send a request again, and compare its answer."""
        if exchange.api_key in LOGIN:
            return ReplayedRequest(exchange, [], is_skipped=True)
        line = self._lines.get(exchange.connection)
        if line is None:
            address = self._nodes.get(exchange.node_id, self._settings.bootstrap[0])
            line = self._lines[exchange.connection] = RawConnection(address, self._settings)
        frame = self._identities.translate_request(exchange)
        expects = exchange.outcome != LEAVING and (
            exchange.api_key != ApiKey.PRODUCE or is_answered(memoryview(frame), exchange.version)
        )
        try:
            answer = await line.send_and_receive(frame, expects)
        except TimeoutError:
            return ReplayedRequest(exchange, [], f"no answer within {self._settings.request_timeout_ms:,} ms")
        except (*FAILURES, EOFError) as error:
            return ReplayedRequest(exchange, [], str(error) or "the connection was closed")
        if not expects or not exchange.answer_bytes:
            return ReplayedRequest(exchange, [])
        return ReplayedRequest(exchange, list_differences(exchange, answer, self._identities))


class RawConnection:
    """A connection for raw frames, opened with the first one."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self._address = address
        self._settings = settings
        self._opening: asyncio.Task[tuple[asyncio.StreamReader, asyncio.StreamWriter]] | None = None
        self._writing, self._reading = asyncio.Lock(), asyncio.Lock()

    async def send_and_receive(self, frame: bytes, expects_answer: bool) -> bytes:
        """Send a frame; return the next answer, or nothing. Raises EOFError, or one of `FAILURES`."""
        try:
            return await self._send_frame(frame, expects_answer)
        except TimeoutError:
            self.close()  # or the next request would get the answer that comes late
            raise

    async def _send_frame(self, frame: bytes, expects_answer: bool) -> bytes:
        """Send a frame, and return the next answer, nothing if none is expected. Raises TimeoutError, OSError."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open_connection())
        async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
            async with self._writing:  # in the order of the calls
                reader, writer = await asyncio.shield(self._opening)
                writer.write(_SIZE.pack(len(frame)) + frame)
            if not expects_answer:
                await writer.drain()
                return b""
            async with self._reading:
                size = _SIZE.unpack(await reader.readexactly(_SIZE.size))[0]
                if not 0 <= size <= self._settings.max_frame_bytes:
                    raise ConnectionError(f"an answer of {size} bytes")
                return await reader.readexactly(size)

    async def _open_connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, authenticate if there are credentials, and return streams in place of the link."""
        settings, network, timeout_s = self._settings, LoopNetwork(), self._settings.setup_timeout_ms / 1000
        link = await network.connect(self._address.host, self._address.port, settings, timeout_s)
        try:
            if settings.credentials is not None:
                await negotiate_and_authenticate(link, settings, network, timeout_s)
        except BaseException:
            link.close()
            raise
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = link.attach_protocol_to_transport(protocol)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    def close(self) -> None:
        """Close the connection. Another request opens a new one."""
        opening, self._opening = self._opening, None
        if opening is not None:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result()[1].close()
            opening.cancel()


async def _fetch_node_addresses(settings: ClientSettings) -> Mapping[int, Address]:
    """Return the addresses of all nodes. Raises ClientError."""
    async with AsyncClient(settings) as client:
        await client.connect_to_any_node()  # which does not try again for long
        answer = await client.fetch_metadata()
        return {each.node_id: Address(each.host, each.port) for each in answer.brokers}


def _get_number_after_end(exchange: Exchange) -> float:
    """Return the number of the first request after the answer to this one; infinity if it had no answer."""
    return float("inf") if exchange.ended_before is None else exchange.ended_before
