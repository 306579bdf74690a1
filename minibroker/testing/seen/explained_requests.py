"""Requests of the journal that explain themselves: byte by byte, and in a line for the report of a failed test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from minibroker.protocol.declare import Struct
from minibroker.protocol.fields import list_declared_fields
from minibroker.protocol.legible import make_legible
from minibroker.protocol.primitives import format_uuid
from minibroker.testing.seen.exchange import SIZE_BYTES, UUID_CODE, Exchange, format_bytes

if TYPE_CHECKING:
    from minibroker.protocol.explaining.parts import Explanation

GIST_CHARACTERS: Final = 300
SHOWN_ITEMS: Final = 3  # of a list
SHOWN_BYTES: Final = 40  # more are counted


class Exchanges(list[Exchange]):
    """Requests with their answers, oldest first."""

    def explain(self) -> str:
        """Return each byte of all frames in a line of its own, with its field, its value and what it means."""
        from minibroker.protocol.explaining.explained_text import format_part_as_lines

        said: list[str] = []
        for item in explain_exchanges(self):
            said += [item.heading, *format_part_as_lines(item.part, item.data)]
        return "\n".join(said)


def explain_exchanges(exchanges: Iterable[Exchange]) -> Iterator[Explanation]:
    """Yield the explained requests and answers. Topic ids have the names that an answer before has given them."""
    from minibroker.protocol.explaining.messages import explain_request, explain_response
    from minibroker.protocol.explaining.parts import NO_TOPICS, Explanation, iterate_topic_ids_and_names

    topics = dict(NO_TOPICS)
    for exchange in exchanges:
        request_frame = _prepend_size(exchange.request_bytes)
        yield Explanation(explain_request(request_frame, topics=topics), request_frame, str(exchange))
        if exchange.answer_bytes:
            answer_frame = _prepend_size(exchange.answer_bytes)
            part = explain_response(answer_frame, exchange.api_key, exchange.version, topics=topics)
            topics.update(iterate_topic_ids_and_names(part))
            yield Explanation(part, answer_frame, f"#{exchange.number} answer")


def summarize_exchange(exchange: Exchange) -> str:
    """Return the fields of a request and its answer that are not what they are by default, in a line."""
    request = exchange.request
    asked = "unreadable" if request is None else _summarize_value(request)
    said = _summarize_value(exchange.answer)
    line = f"#{exchange.number} {exchange.api} {exchange.version} {asked} > {said or exchange.outcome}"
    return make_legible(line, GIST_CHARACTERS)


def _prepend_size(frame: bytes) -> bytes:
    return len(frame).to_bytes(SIZE_BYTES, "big") + frame


def _summarize_value(value: Any, code: str = "") -> str:
    """Return a value in a few words; None is an empty text."""
    if isinstance(value, Struct):
        default = type(value)()
        changed = [
            each
            for each in list_declared_fields(type(value))
            if getattr(value, each.name) != getattr(default, each.name)
        ]
        said = [f"{each.name} {_summarize_value(getattr(value, each.name), each.kind.code)}" for each in changed]
        return f"({', '.join(said)})"
    if isinstance(value, list):
        more = [f"{len(value) - SHOWN_ITEMS} more"] if len(value) > SHOWN_ITEMS else []
        return ", ".join([_summarize_value(each, code) for each in value[:SHOWN_ITEMS]] + more) or "none"
    if isinstance(value, bytes | bytearray | memoryview):
        if code == UUID_CODE:
            return format_uuid(bytes(value))
        return f"{len(value):,} bytes" if len(value) > SHOWN_BYTES else format_bytes(bytes(value))
    return "" if value is None else str(value)
