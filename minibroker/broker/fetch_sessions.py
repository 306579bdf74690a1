"""Fetch sessions (KIP-227): remember a client's partitions, so that its requests need not repeat them.

`handlers/fetch_reading` reads and answers.

    session id  epoch       meaning
    any         0, -1       fetch all that is named; with 0, a session is made for it (any old one ends)
    known       its next    fetch what the session holds, changed by what is named and what is forgotten

Unlike in Kafka, the sessions of a node share a memory limit: beyond it, the client of the largest sessions must name
its partitions in each request.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from minibroker.protocol.errors import ErrorCode, KafkaError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
NO_SESSION: Final = 0
STALE_AFTER_MS: Final = 120_000
LARGEST_EPOCH: Final = (1 << 31) - 1
LIMIT_BYTES: Final = 320 << 20  # a million partitions
PARTITION_BYTES: Final = 300  # of memory, beside the topic's name or id


class FetchedPartition:
    """The fetch parameters of a partition, and what the client last learnt of it.

    `topic` is a name, or, from version 13 on, an id; in a session, `name` is then that of the topic when it was added.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "topic",
    )

    def __init__(self, topic: str | bytes, index: int) -> None:
        self.topic = topic
        self.index = index
        self.name: str | None = None
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.high_watermark = -1
        self.log_start_offset = -1

    def has_changed_for_client(
        self, high_watermark: int, log_start_offset: int, error_code: int, size_bytes: int
    ) -> bool:
        """Return whether the client must get an answer: offsets other than those sent last, records, or an error."""
        has_moved = self.high_watermark != high_watermark or self.log_start_offset != log_start_offset
        return has_moved or size_bytes > 0 or error_code != 0

    def remember_sent_offsets(self, high_watermark: int, log_start_offset: int, error_code: int) -> None:
        """Remember the offsets that were sent, but after an error none, so that the next answer counts as changed."""
        self.high_watermark = -1 if error_code else high_watermark
        self.log_start_offset = log_start_offset


class FetchSession:
    """A client's partitions in the order of serving; a partition that returned data goes to the end.

    `size_bytes` is about the memory that they take, `booked_bytes` the part that is booked in `FetchSessions`.
    """

    __slots__ = ("booked_bytes", "epoch", "last_used_ms", "partitions", "session_id", "size_bytes", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: float) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[tuple[str | bytes, int], FetchedPartition] = {}
        self.size_bytes = self.booked_bytes = 0
        self.uses_topic_ids = uses_topic_ids

    def add_partitions(self, partitions: Iterable[FetchedPartition]) -> None:
        """Add partitions; replace those that the session has already."""
        for partition in partitions:
            key = partition.topic, partition.index
            if key not in self.partitions:
                self.size_bytes += PARTITION_BYTES + len(partition.topic)
            self.partitions[key] = partition

    def remove_partition(self, topic: str | bytes, index: int) -> None:
        """Remove a partition, if the session has it."""
        if self.partitions.pop((topic, index), None) is not None:
            self.size_bytes -= PARTITION_BYTES + len(topic)

    def move_to_end(self, partition: FetchedPartition) -> None:
        """Move a partition that returned data to the end."""
        key = partition.topic, partition.index
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition

    def advance_epoch(self) -> None:
        """Set the epoch of the next request: epochs count up from 1, and skip 0 when they wrap."""
        self.epoch = 1 if self.epoch == LARGEST_EPOCH else self.epoch + 1


class FetchSessions:
    """The sessions of a node, at most `limit` (max.incremental.fetch.session.cache.slots).

    Their partitions take at most about `limit_bytes` of memory, currently `held_bytes`.
    """

    def __init__(self, limit: int, source: random.Random, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._random = source
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def get_session_of_incremental_fetch(
        self, session_id: int, epoch: int, uses_topic_ids: bool, now_ms: float
    ) -> FetchSession:
        """Return the session of this id, whose epoch must be this one.

        Raises KafkaError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"epoch {epoch}, expected {session.epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.last_used_ms = now_ms
        self._sessions.move_to_end(session_id)
        return session

    def create_session(self, partition_count: int, uses_topic_ids: bool, now_ms: float) -> FetchSession | None:
        """Create a session for this many partitions; return None if there is no room and nothing to evict."""
        if not self._evict_for_new_session(partition_count, now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random.randrange(1, 1 << 31)
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms)
        return session

    def update_session_memory(self, session: FetchSession, now_ms: float) -> bool:
        """Count a session's current memory, and evict others if need be; return False if it was removed itself.

        Over the limit, remove sessions that were unused for two minutes, then those more than twice as large as this
        one, then this one.
        """
        if self._sessions.get(session.session_id) is not session:
            return False
        self.held_bytes += session.size_bytes - session.booked_bytes
        session.booked_bytes = session.size_bytes
        while self.held_bytes > self.limit_bytes:
            oldest = next(iter(self._sessions.values()))
            largest = max(self._sessions.values(), key=lambda other: other.booked_bytes)
            if now_ms - oldest.last_used_ms > STALE_AFTER_MS:
                self.remove_session(oldest.session_id)
            elif largest.booked_bytes > 2 * session.booked_bytes:
                self.remove_session(largest.session_id)
            else:
                self.remove_session(session.session_id)
                return False
        return True

    def get_partition_count(self, session_id: int) -> int:
        """Return the number of a session's partitions; 0 without such a session."""
        session = self._sessions.get(session_id)
        return 0 if session is None else len(session.partitions)

    def list_partitions(self, session_id: int) -> list[tuple[str | bytes, int]]:
        """Return a session's partitions as (topic name or id, partition); none without such a session."""
        session = self._sessions.get(session_id)
        return [] if session is None else list(session.partitions)

    def remove_session(self, session_id: int) -> None:
        """Remove a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.held_bytes -= session.booked_bytes

    def _evict_for_new_session(self, partition_count: int, now_ms: float) -> bool:
        """Make room by evicting a session unused for two minutes, or a smaller one; return False if there is none."""
        if len(self._sessions) < self.limit:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > STALE_AFTER_MS:
            self.remove_session(oldest.session_id)
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < partition_count:
            self.remove_session(smallest.session_id)
            return True
        return False
