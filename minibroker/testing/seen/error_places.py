"""The places for errors in an answer: at the top, of a topic, of a partition; and answers that have only errors.

They are found in the declarations of the messages, for every API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message
from minibroker.protocol.fields import Field, list_declared_fields
from minibroker.protocol.response_errors import ERROR_FIELDS
from minibroker.testing.seen.subjects import (
    PARTITION_NUMBERS,
    TOPIC_NAMES,
    GetTopicName,
    find_partition_index,
    find_topic_name,
    iterate_items_of_value,
)

KEY_FIELDS = (*TOPIC_NAMES, "group_id", "key", "transactional_id", "resource_name")
# Kafka's value for "unknown" in these fields; the declarations' default is 0.
UNKNOWN = -1
UNKNOWN_FIELDS = frozenset(
    {
        "base_offset",
        "log_append_time_ms",
        "log_start_offset",
        "high_watermark",
        "last_stable_offset",
        "offset",
        "timestamp",
        "leader_epoch",
        "committed_offset",
        "committed_leader_epoch",
        "end_offset",
        "low_watermark",
        "generation_id",
        "member_epoch",
        "producer_id",
        "producer_epoch",
        "node_id",
        "port",
    }
)
LEVELS = ("top", "topic", "partition")


class ErrorPlace(NamedTuple):
    """A struct of an answer that has an error code, with the topic and partition that it is about, if any."""

    level: str
    topic: str | None
    partition: int | None
    struct: Any
    field: str

    def set_code(self, code: int) -> None:
        """Set the error code; in a ShareFetch also that of the acknowledgements."""
        self.translate_code(lambda _: code)

    def translate_code(self, change: Callable[[int], int]) -> None:
        """Replace the error code by what `change` returns; in a ShareFetch also that of the acknowledgements."""
        for name in (self.field, "acknowledge_error_code"):
            if hasattr(self.struct, name):
                setattr(self.struct, name, change(getattr(self.struct, name)))


def iterate_error_places(response: Message, get_topic_name: GetTopicName) -> Iterator[ErrorPlace]:
    """Yield all places for errors in an answer. One of neither a topic nor a partition (a group's) is at the top."""
    yield from _iterate_places_in(response, "top", None, get_topic_name)


def choose_default_level(error_places: Iterable[ErrorPlace]) -> str:
    """Return the default level for errors: "partition" if there is one, else "topic", else "top"."""
    found = {place.level for place in error_places}
    return next((level for level in reversed(LEVELS) if level in found), "top")


def _iterate_places_in(
    struct: Any, level: str, topic: str | None, get_topic_name: GetTopicName
) -> Iterator[ErrorPlace]:
    """Yield the places for errors in a struct at this level, and in those inside of it."""
    field = find_error_field(struct.__class__)
    if field is not None:
        yield ErrorPlace(level, topic, find_partition_index(struct) if level == "partition" else None, struct, field)
    for name, about_topics in list_fields_with_error_places(struct.__class__):
        below_level = _get_level_below(level, about_topics)
        for below in iterate_items_of_value(getattr(struct, name)):
            own = find_topic_name(below, get_topic_name) if about_topics else None
            yield from _iterate_places_in(below, below_level, own or topic, get_topic_name)


def _get_level_below(level: str, about_topics: bool) -> str:
    """Return the level of structs inside of one at `level`."""
    if about_topics:
        return "topic"
    return "partition" if level in ("topic", "partition") else "top"


@cache
def list_fields_with_error_places(struct: type) -> tuple[tuple[str, bool], ...]:
    """Return the fields that lead to places, and whether each of their structs is about a topic."""
    found = []
    for field in _list_fields_with_types(struct):
        inner = (field.kind.item or field.kind).struct
        if inner is not None and has_error_places(inner):
            found.append((field.name, _is_field_about_topics(field.name, inner)))
    return tuple(found)


def _is_field_about_topics(field: str, struct: type) -> bool:
    """Return whether the structs of a list are about topics, by the name of the list, the struct, or its fields."""
    named = (
        "topic" in field
        or "Topic" in struct.__name__
        or {"topic", "topic_id"} & {f.name for f in _list_fields_with_types(struct)}
    )
    return bool(named) and not field.startswith("partition")


@cache
def has_error_places(struct: type) -> bool:
    """Return whether a struct, or one inside of it, has an error code."""
    if find_error_field(struct) is not None:
        return True
    inner = ((field.kind.item or field.kind).struct for field in _list_fields_with_types(struct))
    return any(has_error_places(below) for below in inner if below is not None)


@cache
def find_error_field(struct: type) -> str | None:
    """Return the name of a struct's own error code, or None."""
    names = {field.name for field in _list_fields_with_types(struct)}
    return next((name for name in ERROR_FIELDS if name in names), None)


@cache
def _list_fields_with_types(struct: type) -> tuple[Field, ...]:
    """Return the declared fields of a struct."""
    return tuple(list_declared_fields(struct))


@cache
def find_levels_with_errors(struct: type, level: str = "top") -> frozenset[str]:
    """Return the levels at which an answer of this class can have errors."""
    found = frozenset() if find_error_field(struct) is None else frozenset({level})
    for field in _list_fields_with_types(struct):
        inner = (field.kind.item or field.kind).struct
        if inner is not None and has_error_places(inner):
            found |= find_levels_with_errors(inner, _get_level_below(level, _is_field_about_topics(field.name, inner)))
    return found


# --- answers of errors only -----------------------------------------------------------------------


def make_error_answer(request: Message, response_class: type[Message], version: int) -> Message:
    """Return an answer with a place for all that the request asks for, and without any data."""
    response = response_class()
    _fill_error_answer(response, request, version)
    return response


def _fill_error_answer(answer: Any, request: Any, version: int) -> None:
    """Give an answer, or a struct in it, an item for each one that the request asks for."""
    _set_unknown_values(answer, version)
    _copy_names_of_subjects(answer, request)
    taken: set[str] = set()
    for field in _list_fields_with_types(answer.__class__):
        inner = (field.kind.item or field.kind).struct
        if (
            field.kind.item is None
            or inner is None
            or not has_error_places(inner)
            or version not in field.facts.present
        ):
            continue
        source = _find_answered_field(request, field.name, taken)
        if source is None:
            continue
        taken.add(source)
        items = []
        for item in iterate_items_of_value(getattr(request, source)):
            answered = inner()
            _fill_error_answer(answered, item, version)
            items.append(answered)
        setattr(answer, field.name, items)


def _find_answered_field(request_part: Any, answer_field: str, used_fields: set[str]) -> str | None:
    """Return the request's field that an answer's list answers item by item, or None."""
    if not hasattr(request_part, "__class__") or isinstance(request_part, int | str | bytes):
        return None
    lists = [
        field.name
        for field in _list_fields_with_types(request_part.__class__)
        if field.kind.item is not None and getattr(request_part, field.name) and field.name not in used_fields
    ]
    lists = [name for name in lists if not name.startswith(("forgotten", "config", "assignment", "feature"))]
    if answer_field in lists:
        return answer_field
    return lists[0] if lists else None


def _set_unknown_values(answer: Any, version: int) -> None:
    """Set offsets and the like to -1, which is unknown, and records to none."""
    for field in _list_fields_with_types(answer.__class__):
        if field.name in UNKNOWN_FIELDS and field.kind.is_fixed:
            setattr(answer, field.name, UNKNOWN)
        elif field.name == "records" and version in field.facts.present:
            setattr(answer, field.name, b"")


def _copy_names_of_subjects(answer: Any, request_part: Any) -> None:
    """Copy the names of topics, partitions, groups and other subjects from the request."""
    names = {field.name for field in _list_fields_with_types(answer.__class__)}
    if isinstance(request_part, str):
        for name in KEY_FIELDS:
            if name in names:
                setattr(answer, name, request_part)
                return
    elif isinstance(request_part, int):
        for name in PARTITION_NUMBERS:
            if name in names:
                setattr(answer, name, request_part)
                return
    else:
        _copy_fields(answer, request_part, names)


def _copy_fields(answer: Any, request_part: Any, names: set[str]) -> None:
    """Copy the fields that both structs have, except unknown ones and lists, and the topic or partition."""
    for field in _list_fields_with_types(request_part.__class__):
        if field.name in names and field.name not in UNKNOWN_FIELDS and field.kind.item is None:
            value = getattr(request_part, field.name)
            if value is not None and (field.kind.is_fixed or isinstance(value, str)):
                setattr(answer, field.name, value)
    for group in (TOPIC_NAMES, PARTITION_NUMBERS):
        value = next((getattr(request_part, name) for name in group if hasattr(request_part, name)), None)
        target = next((name for name in group if name in names), None)
        if target is not None and value is not None:
            setattr(answer, target, value)
