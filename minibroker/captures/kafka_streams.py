"""Finds Kafka's frames in the streams of a connection, and pairs answers with their requests by correlation id.

A stream is in step where a frame begins at a known place: at its begin, and behind each frame. Behind a gap, and in a
capture that begins in the middle, the next place is searched where a request can begin, or an answer to one of the
requests; a second frame must follow there.

    request  int32 size, int16 API key, int16 version, int32 correlation id, string client id
    answer   int32 size, int32 correlation id

After a SaslHandshake of version 0, tokens without a header follow, each behind its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from minibroker.captures.tcp_streams import Connection, Stream
from minibroker.protocol.apis import ApiKey, get_request_class
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.primitives import MalformedMessage

MAX_FRAME_BYTES: Final = 100 << 20  # Kafka's default of socket.request.max.bytes
SIZE_BYTES: Final = 4
_SIZE: Final = Struct(">i")
_REQUEST: Final = Struct(">ihhih")
_NO_CLIENT_ID: Final = Struct(">ihhi")
_ANSWER: Final = Struct(">ii")
_TLS: Final = re.compile(rb"\x16\x03[\x00-\x04]")
# Where a request or an answer can begin: the first byte of its size, and of a request the high bytes of its numbers.
_REQUEST_PLACE: Final = re.compile(rb"(?=[\x00-\x06][\x00-\xff]{3}\x00[\x00-\xff]\x00[\x00-\xff])")
_ANSWER_PLACE: Final = re.compile(rb"(?=[\x00-\x06])")

LooksLikeFrame = Callable[[bytes, int], bool]


class Frame(NamedTuple):
    """A frame with its size, from a position of a stream. `missing_bytes` of it are not there.

    `time` is when its last byte came, in seconds, None if that is not known. A token of SASL has no header.
    """

    position: int
    data: bytes
    missing_bytes: int = 0
    time: float | None = None
    is_token: bool = False

    @property
    def correlation_id(self) -> int | None:
        """The correlation id of a request; None if it is cut off."""
        return None if len(self.data) < _NO_CLIENT_ID.size else _NO_CLIENT_ID.unpack_from(self.data)[3]

    @property
    def correlation_id_of_answer(self) -> int | None:
        """The correlation id of an answer; None if it is cut off."""
        return None if len(self.data) < _ANSWER.size else _ANSWER.unpack_from(self.data)[1]

    @property
    def api(self) -> tuple[int, int]:
        """The API key and the version of a request; -1 if they are cut off."""
        found = _NO_CLIENT_ID.unpack_from(self.data) if len(self.data) >= _NO_CLIENT_ID.size else (0, -1, -1, 0)
        return found[1], found[2]


class SkippedStreamBytes(NamedTuple):
    """Bytes of a stream that belong to no frame."""

    position: int
    size_bytes: int


class RequestAnswerPair(NamedTuple):
    """A request and its answer; None for one that is not there."""

    request: Frame | None
    answer: Frame | None

    @property
    def time(self) -> float | None:
        frame = self.request or self.answer
        return frame.time if frame else None

    @property
    def duration_ms(self) -> float | None:
        """How long the answer took, None if that is not known."""
        if self.request is None or self.answer is None or self.request.time is None or self.answer.time is None:
            return None
        return (self.answer.time - self.request.time) * 1000


class Conversation(NamedTuple):
    """The requests and answers of a connection, in the order of the requests, and what is to be said about it."""

    connection: Connection
    pairs: list[RequestAnswerPair]
    notes: list[str]


class Conversations(NamedTuple):
    """Those in a capture, and the numbers of connections that are none."""

    found: list[Conversation]
    tls: list[Connection]
    others: int


def find_conversations(connections: list[Connection], port: int | None = None) -> Conversations:
    """Return the conversations of all connections with Kafka: those to a port, or those that have requests."""
    found = [find_conversation(each, port) for each in connections]
    tls = [each for each, said in zip(connections, found, strict=True) if said is None and is_tls(each)]
    heard = [each for each in found if each is not None]
    return Conversations(heard, tls, len(connections) - len(heard) - len(tls))


def find_conversation(connection: Connection, port: int | None = None) -> Conversation | None:
    """Return the conversation of a connection, None if it is none with Kafka."""
    if port is not None and port not in (connection.client.port, connection.server.port):
        return None
    if connection.client.port == port or not (connection.has_begin or _has_requests(connection.to_server)):
        connection = connection.swap_ends()
    return _pair_frames(connection) if _has_requests(connection.to_server) else None


def is_tls(connection: Connection) -> bool:
    """Return whether a side of the connection begins with a handshake of TLS."""
    streams = (connection.to_server, connection.to_client)
    return any(_TLS.match(each.runs[0].data) is not None for each in streams if each.runs)


def _has_requests(stream: Stream) -> bool:
    frames = _iterate_frames(stream, looks_like_request, _REQUEST_PLACE)
    return any(isinstance(each, Frame) and looks_like_request(each.data, 0) for each in frames)


# --- frames ---


def looks_like_request(data: bytes, position: int) -> bool:
    """Return whether a request can be at a position: one that can be read, or the begin of one with a client id."""
    if position + _REQUEST.size > len(data):
        return False
    size, key, version, _, length = _REQUEST.unpack_from(data, position)
    if not _NO_CLIENT_ID.size - SIZE_BYTES <= size <= MAX_FRAME_BYTES or key not in ApiKey._value2member_map_:
        return False
    if version not in get_request_class(key).versions and key != ApiKey.API_VERSIONS:
        return False
    end, start = position + SIZE_BYTES + size, position + _REQUEST.size
    if end > len(data) or version not in get_request_class(key).versions:
        return 0 < length <= size and data[start : start + length].decode(errors="replace").isprintable()
    return _can_decode_request(data[position + SIZE_BYTES : end], ApiKey(key), version)


def _can_decode_request(frame: bytes, key: ApiKey, version: int) -> bool:
    try:
        _, position = RequestHeader.decode_from(frame, get_request_header_version(key, version))
        get_request_class(key).decode(frame, version, position)
    except MalformedMessage:
        return False
    return True


def _make_check_of_answer_ids(awaited_correlation_ids: set[int | None]) -> LooksLikeFrame:
    def looks_like_answer(data: bytes, position: int) -> bool:
        if position + _ANSWER.size > len(data):
            return False
        size, correlation_id = _ANSWER.unpack_from(data, position)
        return SIZE_BYTES <= size <= MAX_FRAME_BYTES and correlation_id in awaited_correlation_ids

    return looks_like_answer


def _iterate_frames(
    stream: Stream, looks_like_frame: LooksLikeFrame, possible_starts: re.Pattern[bytes]
) -> Iterator[Frame | SkippedStreamBytes]:
    """Yield all frames, and the bytes between them that are none."""
    next_position, in_step = 0, stream.has_begin
    for run in stream.runs:
        if next_position < run.start:
            next_position, in_step = run.start, False
        at = next_position - run.start
        while at < len(run.data):
            size = _SIZE.unpack_from(run.data, at)[0] if len(run.data) - at >= SIZE_BYTES else 0
            if not in_step or not 0 <= size <= MAX_FRAME_BYTES:
                place = _find_next_frame(run.data, at, looks_like_frame, possible_starts)
                in_step = True
                if place > at:
                    yield SkippedStreamBytes(run.start + at, place - at)
                    at = place
                    continue
            end = at + SIZE_BYTES + size
            data = run.data[at:end]
            yield Frame(run.start + at, data, end - at - len(data), run.find_time_at(run.start + at + len(data) - 1))
            at = end
        next_position = run.start + at


def _find_next_frame(
    data: bytes, position: int, looks_like_frame: LooksLikeFrame, possible_starts: re.Pattern[bytes]
) -> int:
    """Return where a frame begins that reaches the end of the data or another frame; the end if there is none."""
    for match in possible_starts.finditer(data, position):
        place = match.start()
        if looks_like_frame(data, place):
            end = place + SIZE_BYTES + _SIZE.unpack_from(data, place)[0]
            if end >= len(data) or looks_like_frame(data, end):
                return place
    return len(data)


# --- pairs ---


def _pair_frames(connection: Connection) -> Conversation:
    asked = list(_iterate_frames(connection.to_server, looks_like_request, _REQUEST_PLACE))
    requests = list(_mark_sasl_tokens(each for each in asked if isinstance(each, Frame)))
    awaited = {each.correlation_id for each in requests}
    answered = list(_iterate_frames(connection.to_client, _make_check_of_answer_ids(awaited), _ANSWER_PLACE))
    pairs = _match_answers(requests, [each for each in answered if isinstance(each, Frame)])
    return Conversation(connection, pairs, list(_iterate_notes_about_skipped_bytes(connection, asked, answered)))


def _mark_sasl_tokens(requests: Iterator[Frame]) -> Iterator[Frame]:
    """Yield the frames; those behind a SaslHandshake of version 0 that are no requests are tokens."""
    expects_tokens = False
    for frame in requests:
        is_token = expects_tokens and not looks_like_request(frame.data, 0)
        expects_tokens = is_token or frame.api == (ApiKey.SASL_HANDSHAKE, 0)
        yield frame._replace(is_token=is_token)


def _match_answers(requests: list[Frame], answers: list[Frame]) -> list[RequestAnswerPair]:
    """Return each request with its answer, then the answers without a request. Brokers answer in order."""
    waiting: dict[int | None, list[int]] = {}
    for index, request in reversed(list(enumerate(requests))):
        waiting.setdefault(None if request.is_token else request.correlation_id, []).append(index)
    found: dict[int, Frame] = {}
    alone: list[RequestAnswerPair] = []
    last = -1
    for answer in answers:
        tokens = waiting.get(None, [])
        if tokens and requests[tokens[-1]].is_token and tokens[-1] == last + 1:
            last = tokens.pop()
            found[last] = answer._replace(is_token=True)
        elif waiting.get(answer.correlation_id_of_answer):
            last = waiting[answer.correlation_id_of_answer].pop()
            found[last] = answer
        else:
            alone.append(RequestAnswerPair(None, answer))
    return [RequestAnswerPair(request, found.get(index)) for index, request in enumerate(requests)] + alone


def _iterate_notes_about_skipped_bytes(
    connection: Connection,
    request_frames: list[Frame | SkippedStreamBytes],
    answer_frames: list[Frame | SkippedStreamBytes],
) -> Iterator[str]:
    for stream, frames, side in (
        (connection.to_server, request_frames, "client"),
        (connection.to_client, answer_frames, "server"),
    ):
        if not stream.has_begin:
            yield f"the capture does not have the first bytes of the {side}"
        if stream.missing_bytes:
            yield f"{stream.missing_bytes:,} bytes of the {side} are not in the capture"
        if stream.repeated_bytes:
            yield f"{stream.repeated_bytes:,} bytes of the {side} came more than once"
        skipped = sum(each.size_bytes for each in frames if isinstance(each, SkippedStreamBytes))
        if skipped:
            yield f"{skipped:,} bytes of the {side} belong to no frame whose begin is known"
