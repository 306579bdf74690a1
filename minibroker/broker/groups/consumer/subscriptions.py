"""The subscriptions of a consumer group's members: topics by name, and patterns with the topics that they match.

How a pattern is read is in `patterns/`, what follows from a change in `updating`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.broker.groups.consumer.member import ConsumerMember
from minibroker.broker.metadata.image import Image
from minibroker.patterns.program import Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.protocol.errors import ErrorCode, KafkaError

HASH_BYTES = 8


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched, the version of the metadata then (the offset in its log), and the time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


def compile_subscribed_pattern(pattern: str) -> Pattern:
    """Return the compiled pattern. Raises KafkaError(INVALID_REGULAR_EXPRESSION)."""
    try:
        return Pattern(pattern)
    except InvalidPattern as error:
        message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error.description}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def collect_subscribed_patterns(members: Iterable[ConsumerMember]) -> set[str]:
    """Return the patterns that members subscribe to."""
    return {member.topic_regex for member in members if member.topic_regex}


def find_subscribed_topic_ids(
    topic_names: frozenset[str], topic_regex: str, patterns: Mapping[str, ResolvedPattern], image: Image
) -> frozenset[bytes]:
    """Return the ids of the existing topics of a subscription."""
    names = topic_names
    if topic_regex in patterns:
        names = names | patterns[topic_regex].topics
    return frozenset(image.topics[name].topic_id for name in names if name in image.topics)


def hash_topic_metadata(topic_names: Iterable[str], image: Image) -> int:
    """Return a hash (int64) of these topics and their numbers of partitions; 0 without topics.

    Kafka has another hash function. After a group has moved from one broker to the other, its hash differs once, which
    begins another epoch.
    """
    found = sorted(
        (topic.topic_id, len(topic.partitions)) for name in topic_names if (topic := image.topics.get(name)) is not None
    )
    if not found:
        return 0
    digest = hashlib.blake2b(digest_size=HASH_BYTES)
    for topic_id, partition_count in found:
        digest.update(topic_id)
        digest.update(partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
