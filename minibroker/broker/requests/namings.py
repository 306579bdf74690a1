"""A limit on how often a request names the same thing, as a few kilobytes could otherwise request gigabytes.

Kafka answers each repetition. Clients name nothing more than once or twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from minibroker.protocol.errors import ErrorCode, KafkaError

MOST_NAMINGS = 10


class Namings:
    """The names in a request so far."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def count_repeated_name(self, name: Hashable) -> None:
        """Count a name. Raises KafkaError(INVALID_REQUEST) beyond ten of the same."""
        self._counts[name] += 1
        if self._counts[name] > MOST_NAMINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names it more than {MOST_NAMINGS} times.")
