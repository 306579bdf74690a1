"""How often a request names the same thing: a few kilobytes could else ask for an answer of gigabytes.

Kafka answers each naming. No client names anything more than once or twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from minibroker.protocol.errors import ErrorCode, KafkaError

MOST_NAMINGS = 10


class Namings:
    """What one request has named so far."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()

    def add(self, name: Hashable) -> None:
        """Count a naming. Raises KafkaError(INVALID_REQUEST) beyond ten of the same."""
        self._counts[name] += 1
        if self._counts[name] > MOST_NAMINGS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names it more than {MOST_NAMINGS} times.")
