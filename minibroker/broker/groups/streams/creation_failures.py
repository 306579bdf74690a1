"""Why internal topics could not be created, kept for a while so that not every heartbeat tries again."""

from __future__ import annotations

from minibroker.broker.clock import Clock

MAXIMUM = 1000


class TopicCreationFailures:
    """The failures by topic. The oldest make room for others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[str, tuple[str, int]] = {}

    def add_failure(self, topic: str, failure: str, lifetime_ms: int) -> None:
        """Remember for `lifetime_ms` why a topic could not be created."""
        self._failures.pop(topic, None)
        if len(self._failures) >= MAXIMUM:
            del self._failures[next(iter(self._failures))]
        self._failures[topic] = failure, self._clock.wall_ms() + lifetime_ms

    def find_failure_of_topic(self, topic: str) -> str | None:
        """Return why a topic could not be created lately, or None."""
        failure, end_ms = self._failures.get(topic, ("", 0))
        if self._clock.wall_ms() < end_ms:
            return failure
        self._failures.pop(topic, None)
        return None
