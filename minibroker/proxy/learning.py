"""What the proxy learns of the cluster from answers: the names of topic ids, and the partitions of fetch sessions.

Faults need both to see whether a request is about a topic. The classes have the attributes of the broker's own that
faults read; all are bounded, and forget the oldest first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.primitives import ZERO_UUID

MOST_TOPICS: Final = 100_000
MOST_SESSIONS: Final = 1_000  # of a node, as in Kafka
MOST_PARTITIONS: Final = 100_000  # of all sessions of a node
NAMING: Final = (ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS)


class LearnedTopic(NamedTuple):
    """A topic's name and id."""

    name: str
    topic_id: bytes


class LearnedTopics:
    """The topics that were named in answers."""

    def __init__(self) -> None:
        self.topics: OrderedDict[str, LearnedTopic] = OrderedDict()
        self.topics_by_id: dict[bytes, LearnedTopic] = {}

    def learn_topic_names(self, response: Any) -> None:
        """Learn the topics' names and ids from an answer that has both, such as one to Metadata."""
        for topic in response.topics:
            topic_id = getattr(topic, "topic_id", ZERO_UUID)
            if topic.name and topic_id != ZERO_UUID:
                self._learn_topic_name(LearnedTopic(topic.name, topic_id))

    def get_topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if an answer has named it."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def _learn_topic_name(self, topic: LearnedTopic) -> None:
        known = self.topics.pop(topic.name, None)
        if known is not None and known != topic:
            self.topics_by_id.pop(known.topic_id, None)
        self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic
        if len(self.topics) > MOST_TOPICS:
            _, forgotten = self.topics.popitem(last=False)
            self.topics_by_id.pop(forgotten.topic_id, None)


class LearnedFetchSessions:
    """The partitions of the fetch sessions of a node (KIP-227)."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, dict[tuple[str | bytes, int], None]] = OrderedDict()
        self._partitions = 0

    def list_partitions(self, session_id: int) -> Iterable[tuple[str | bytes, int]]:
        """Return the partitions of a session, by name or id of the topic; none if it is not known."""
        return self._sessions.get(session_id, {})

    def apply_fetch(self, request: Any, version: int, session_id: int) -> None:
        """Update the session's partitions by a Fetch that was answered with this `session_id`; 0 ends it."""
        before = self._sessions.pop(request.session_id, {}) if request.session_id else {}
        self._partitions -= len(before)
        if not session_id:
            return
        partitions = before if request.session_epoch > 0 else {}
        for topic in request.topics:
            name = topic.topic_id if version >= FIRST_WITH_IDS else topic.topic
            partitions.update(((name, each.partition), None) for each in topic.partitions)
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if version >= FIRST_WITH_IDS else topic.topic
            for index in topic.partitions:
                partitions.pop((name, index), None)
        self._sessions[session_id] = partitions
        self._partitions += len(partitions)
        while len(self._sessions) > MOST_SESSIONS or (self._partitions > MOST_PARTITIONS and len(self._sessions) > 1):
            _, dropped = self._sessions.popitem(last=False)
            self._partitions -= len(dropped)


FIRST_WITH_IDS: Final = 13


class ShareSessions:
    """The share sessions, of which the proxy knows none: they have no id in the answers."""

    def __init__(self) -> None:
        self.sessions: dict[Any, Any] = {}
