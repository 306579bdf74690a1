"""What a request is about: topics and their partitions, groups, transactional ids.

Kafka's schemas name these alike in all messages, so no message needs code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.declare import Message, Struct
from minibroker.protocol.fields import Field, list_declared_fields
from minibroker.protocol.primitives import ZERO_UUID

TOPIC_NAMES = ("name", "topic", "topic_name")
PARTITION_NUMBERS = ("partition", "partition_index", "index")
GROUPS = frozenset({"group_id", "group_ids", "groups", "groups_names"})
TRANSACTIONAL_IDS = frozenset({"transactional_id", "transactional_ids", "v3_and_below_transactional_id"})
GROUP_KEY, TRANSACTION_KEY = 0, 1  # FindCoordinator's key types
TOPIC_RESOURCE = 2

GetTopicName = Callable[[bytes], str | None]


class NamedSubjects(NamedTuple):
    """The topics, groups and transactional ids that a request names. A topic without partitions has an empty set."""

    topics: dict[str, set[int]]
    groups: set[str]
    transactional_ids: set[str]


def find_subjects(message: Message, get_topic_name: GetTopicName) -> NamedSubjects:
    """Return the topics, partitions, groups and transactional ids that a message names."""
    found = NamedSubjects({}, set(), set())
    _collect_subjects(message, found, get_topic_name)
    _collect_typed_keys(message, found)
    return found


def find_topic_name(struct: Any, get_topic_name: GetTopicName) -> str | None:
    """Return the topic that a struct names by its own fields, or None."""
    for name in TOPIC_NAMES:
        topic = getattr(struct, name, None)
        if isinstance(topic, str) and topic:
            return topic
    topic_id = getattr(struct, "topic_id", ZERO_UUID)
    return None if topic_id == ZERO_UUID else get_topic_name(topic_id)


def find_partition_index(value: Any) -> int | None:
    """Return the partition index that a value in a topic's struct is, or has as a field; None if neither."""
    if isinstance(value, int):
        return value
    for name in PARTITION_NUMBERS:
        number = getattr(value, name, None)
        if isinstance(number, int):
            return number
    return None


@cache
def list_struct_fields(struct: type) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a struct that hold structs, and whether each of these is about a topic."""
    return tuple(
        (field.name, "topic" in field.name or field.name == "responses")
        for field in list_declared_fields(struct)
        if (field.kind.item or field.kind).struct is not None
    )


def iterate_items_of_value(value: Any) -> Iterator[Any]:
    """Yield the items of a list, or the value itself unless it is None."""
    if isinstance(value, list):
        yield from value
    elif value is not None:
        yield value


def _collect_subjects(struct: Any, subjects: NamedSubjects, get_topic_name: GetTopicName) -> None:
    """Add what a struct, and those inside of it, name to `subjects`."""
    for field in _list_fields(struct):
        if field.name in GROUPS:
            subjects.groups.update(
                text for text in iterate_items_of_value(getattr(struct, field.name)) if isinstance(text, str) and text
            )
        elif field.name in TRANSACTIONAL_IDS:
            subjects.transactional_ids.update(filter(None, iterate_items_of_value(getattr(struct, field.name))))
        elif field.name in ("topic_names", "subscribed_topic_names"):
            for topic in iterate_items_of_value(getattr(struct, field.name)):
                subjects.topics.setdefault(topic, set())
    for name, about_topic in list_struct_fields(struct.__class__):
        for below in iterate_items_of_value(getattr(struct, name)):
            topic = find_topic_name(below, get_topic_name) if about_topic else None
            if topic is not None:
                subjects.topics.setdefault(topic, set()).update(iterate_partitions(below))
            _collect_subjects(below, subjects, get_topic_name)


def iterate_partitions(struct: Any) -> Iterator[int]:
    """Yield the partitions that a topic's struct names."""
    for field in _list_fields(struct):
        if field.name.startswith("partition"):
            for value in iterate_items_of_value(getattr(struct, field.name)):
                number = find_partition_index(value)
                if number is not None:
                    yield number


def _list_fields(struct: Struct) -> tuple[Field, ...]:
    """Return the declared fields of a struct."""
    kind: type = type(struct)
    return tuple(list_declared_fields(kind))


def _collect_typed_keys(message: Any, subjects: NamedSubjects) -> None:
    """Find FindCoordinator's keys, whose type is another field, and the topics among the resources of configs."""
    key_type = getattr(message, "key_type", None)
    keys = {key for key in (getattr(message, "key", ""), *getattr(message, "coordinator_keys", ())) if key}
    if key_type == GROUP_KEY:
        subjects.groups.update(keys)
    elif key_type == TRANSACTION_KEY:
        subjects.transactional_ids.update(keys)
    for resource in getattr(message, "resources", ()):
        if getattr(resource, "resource_type", None) == TOPIC_RESOURCE:
            subjects.topics.setdefault(resource.resource_name, set())
