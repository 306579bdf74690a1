"""Taking out of a request what a fault is about, and putting its errors into the answer to the rest.

So a fault of one partition leaves the others of the same request as they are. Whole answers are made in `answers`.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.declare import Message
from minibroker.protocol.fields import fields
from minibroker.testing.faults.places import places_below
from minibroker.testing.faults.rules import Rule
from minibroker.testing.subjects import NameOf, each, partition_of, structs_below, topic_of


def take_out(request: Any, rule: Rule, name_of: NameOf) -> bool:
    """Take the rule's topic or partition out of the request; whether anything is left in the list that it was in.

    A rule without topic and partition is about all of it.
    """
    if rule.topic is None and rule.partition is None:
        return False
    left = taken = False
    for name, about_topics in structs_below(request.__class__):
        topics = getattr(request, name)
        if not about_topics or not isinstance(topics, list):
            continue
        kept = [topic for topic in topics if _keeps(topic, rule, name_of)]
        taken = taken or len(kept) < len(topics) or _is_in(topics, rule, name_of)
        left = left or bool(kept)
        setattr(request, name, kept)
    return left and taken


def _is_in(topics: list[Any], rule: Rule, name_of: NameOf) -> bool:
    return any(rule.topic in (None, topic_of(topic, name_of)) for topic in topics)


def _keeps(topic: Any, rule: Rule, name_of: NameOf) -> bool:
    """Whether something of the topic stays in the request, out of which its meant partitions are taken."""
    if rule.topic is not None and topic_of(topic, name_of) != rule.topic:
        return True
    if rule.partition is None:
        return False
    stays = False
    for field in fields(topic.__class__):
        if field.name.startswith("partition") and field.kind.item is not None:
            kept = [value for value in each(getattr(topic, field.name)) if partition_of(value) != rule.partition]
            setattr(topic, field.name, kept)
            stays = stays or bool(kept)
    return stays


def put_in(response: Message, errors: Message, rule: Rule, name_of: NameOf) -> None:
    """Add to `response`, the answer to the rest, what `errors`, an answer to all, says where the rule is meant."""
    for name, about_topics in places_below(errors.__class__):
        if about_topics:
            for topic in each(getattr(errors, name)):
                _put_topic(getattr(response, name), topic, rule, name_of)


def _put_topic(topics: list[Any], topic: Any, rule: Rule, name_of: NameOf) -> None:
    named = topic_of(topic, name_of)
    if rule.topic is not None and named != rule.topic:
        return
    lists = [name for name, _ in places_below(topic.__class__)]
    if rule.partition is not None:
        for name in lists:
            meant = [value for value in each(getattr(topic, name)) if partition_of(value) == rule.partition]
            setattr(topic, name, meant)
    there = next((other for other in topics if topic_of(other, name_of) == named), None)
    if there is None:
        topics.append(topic)
        return
    for name in lists:
        getattr(there, name).extend(getattr(topic, name))
