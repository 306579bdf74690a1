"""Explains the requests and answers of captured connections, each answer in the version of its request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from minibroker.captures.kafka_streams import SIZE_BYTES, Conversation, Frame, RequestAnswerPair
from minibroker.captures.tcp_streams import Connection
from minibroker.protocol.apis import ApiKey, get_api_name, get_response_class
from minibroker.protocol.explaining.embedded import explain_sasl_token
from minibroker.protocol.explaining.messages import explain_request, explain_response
from minibroker.protocol.explaining.parts import (
    NO_TOPICS,
    ExplainedPart,
    Explanation,
    PartCursor,
    iterate_topic_ids_and_names,
)


class NumberedPair(NamedTuple):
    """A request and its answer in a capture, numbered by time."""

    number: int
    connection: Connection
    pair: RequestAnswerPair

    @property
    def name(self) -> str:
        """The API and its version, such as "Fetch 13"."""
        request = self.pair.request
        if request is None:
            return "an answer without its request"
        key, version = request.api
        if request.is_token:
            return "a token of SASL"
        return f"{get_api_name(key)} {version}" if key in ApiKey._value2member_map_ else f"API {key} {version}"


def number_pairs(conversations: Iterable[Conversation]) -> list[NumberedPair]:
    """Return the pairs of all conversations by the times of the requests, numbered from 1."""
    pairs = [(pair, each.connection) for each in conversations for pair in each.pairs]
    pairs.sort(key=lambda each: each[0].time or 0)
    return [NumberedPair(number, connection, pair) for number, (pair, connection) in enumerate(pairs, 1)]


class CaptureExplainer:
    """Explains pairs in their order, and remembers the ids of the topics that answers name."""

    def __init__(self) -> None:
        self._topics = dict(NO_TOPICS)

    def explain_pair(self, numbered_pair: NumberedPair) -> Iterator[Explanation]:
        """Yield the explained request and the explained answer, as far as they are there."""
        request, answer = numbered_pair.pair.request, numbered_pair.pair.answer
        if request is not None:
            yield Explanation(
                self._explain_request(request), request.data, _make_heading(numbered_pair, request, is_request=True)
            )
        if answer is not None:
            yield Explanation(
                self._explain_answer(numbered_pair, answer),
                answer.data,
                _make_heading(numbered_pair, answer, is_request=False),
            )

    def learn_topic_ids(self, numbered_pair: NumberedPair) -> None:
        """Remember the ids of topics in a pair that is not shown."""
        for _ in self.explain_pair(numbered_pair):
            pass

    def _explain_request(self, request: Frame) -> ExplainedPart:
        return _explain_token(request) if request.is_token else explain_request(request.data, topics=self._topics)

    def _explain_answer(self, numbered_pair: NumberedPair, answer: Frame) -> ExplainedPart:
        if answer.is_token:
            return _explain_token(answer)
        key, version = numbered_pair.pair.request.api if numbered_pair.pair.request else (-1, -1)
        if not _can_read_answer(key, version):
            return _explain_unknown_answer(answer)
        part = explain_response(answer.data, key, version, topics=self._topics)
        self._topics.update(iterate_topic_ids_and_names(part))
        return part


def format_capture_time(time: float | None) -> str:
    """Return the time of day of a packet, in UTC, down to microseconds; empty if it is not known."""
    return "" if time is None else f"{datetime.fromtimestamp(time, UTC):%H:%M:%S.%f}Z"


def _make_heading(numbered_pair: NumberedPair, frame: Frame, *, is_request: bool) -> str:
    connection = numbered_pair.connection
    ends = (connection.client, connection.server) if is_request else (connection.server, connection.client)
    took = numbered_pair.pair.duration_ms
    said = [f"#{numbered_pair.number} {'request' if is_request else 'answer'}", format_capture_time(frame.time)]
    said += [f"{ends[0]} > {ends[1]}"]
    said += [f"after {took:.1f} ms"] if took is not None and not is_request else []
    said += [f"{frame.missing_bytes:,} of its bytes are not there"] if frame.missing_bytes else []
    return ", ".join(each for each in said if each)


def _explain_token(frame: Frame) -> ExplainedPart:
    """Explain a token of SASL without a header, as after a SaslHandshake of version 0."""
    cursor = PartCursor(frame.data)
    cursor.is_secret = True
    with cursor.add_part("token", "frame") as whole, cursor.limit_cursor_to_part(whole):
        _explain_int32(cursor, "size")
        with cursor.add_part("token", "bytes") as part:
            explain_sasl_token(cursor, part, cursor.left_bytes)
    return whole


def _can_read_answer(key: int, version: int) -> bool:
    if key == ApiKey.API_VERSIONS:
        return True  # brokers answer an unknown version in version 0
    return key in ApiKey._value2member_map_ and version in get_response_class(key).versions


def _explain_unknown_answer(frame: Frame) -> ExplainedPart:
    cursor = PartCursor(frame.data)
    with cursor.add_part("response", "frame") as whole, cursor.limit_cursor_to_part(whole):
        _explain_int32(cursor, "size")
        _explain_int32(cursor, "correlation_id")
        whole.meaning = "its request is not in the capture"
    return whole


def _explain_int32(cursor: PartCursor, name: str) -> None:
    with cursor.add_part(name, "int32") as part:
        part.value = int.from_bytes(cursor.read_bytes(SIZE_BYTES), "big", signed=True)
