"""Compares two answers to the same request, and learns which ids of the one cluster stand for those of the other.

Ids that a cluster chooses (of topics, members, producers, fetch sessions) differ by nature. Where an answer names one
in the place of another, later requests name that one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from minibroker.protocol.apis import get_request_class
from minibroker.protocol.declare import Struct
from minibroker.protocol.fields import Field, list_declared_fields
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.legible import make_legible
from minibroker.protocol.primitives import MalformedMessage, format_uuid
from minibroker.protocol.records.batch import MAGIC, set_checksum
from minibroker.protocol.records.formats import iterate_batches_in
from minibroker.proxy.requests import is_known_version
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


class ClusterIdentities:
    """The ids of the new cluster by those of the recorded one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Any], Any] = {}

    def learn_new_id(self, name: str, before: Any, after: Any) -> bool:
        """Learn from a field that differs. Return False if it has no id."""
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
        """Return what stands for a value of the recorded cluster, or None."""
        if name == "records" and value:
            return self._translate_producers(bytes(value))
        return self._known.get((IDENTITIES[name], value)) if name in IDENTITIES else None

    def _translate_producers(self, data: bytes) -> bytes | None:
        """Return batches with the new ids of their producers, or None if there are none."""
        changed, is_changed = bytearray(data), False
        for position, header in iterate_batches_in(data):
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
    return list(_compare_values(before, after, "", identities.learn_new_id))[:MOST_DIFFERENCES]


def _list_fields(struct: Struct) -> tuple[Field, ...]:
    kind: type = type(struct)
    return tuple(list_declared_fields(kind))


LearnIdentity = Callable[[str, Any, Any], bool]


def _compare_values(before: Any, after: Any, path: str, learn: LearnIdentity) -> Iterator[str]:
    for field in _list_fields(before):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if field.name not in VOLATILE:
            yield from _compare_leaves(old, new, f"{path}.{field.name}" if path else field.name, field.name, learn)


def _compare_leaves(old: Any, new: Any, path: str, name: str, learn: LearnIdentity) -> Iterator[str]:
    if isinstance(old, Struct) and isinstance(new, Struct):
        yield from _compare_values(old, new, path, learn)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _compare_leaves(one, other, f"{path}[{index}]", name, learn)
        if len(old) != len(new):
            yield f"{path}: {format_count(len(new), 'item')} in the place of {len(old)}"
    elif old != new and not learn(name, old, new):
        yield f"{path}: {_format_value(new)} in the place of {_format_value(old)}"


def _format_value(value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(value)} bytes" if len(value) != 16 else format_uuid(bytes(value))
    return make_legible(str(value), SHOWN_CHARACTERS)
