"""How many values may be made of the data of one record, and for how long.

A few bytes may stand for any number of values.
"""

from __future__ import annotations

import time
from typing import Final

from minibroker.registry.formats.schema import InvalidData

MAXIMUM_VALUES: Final = 1_000_000  # which take about 100 MB, and a second
MAXIMUM_DEPTH: Final = 100
VALUES_BETWEEN_LOOKS: Final = 5_000  # at the time: 30 ms of nested records


class DecodingBudget:
    """The values that were made of some data. With `seconds`, no more are made once they are over."""

    def __init__(self, seconds: float | None = None) -> None:
        self._left = MAXIMUM_VALUES
        self._ends = time.monotonic() + (seconds or 0.0)
        self._next_look = -1 if seconds is None else MAXIMUM_VALUES - VALUES_BETWEEN_LOOKS  # when so many are left

    def count_values(self, count: int = 1) -> None:
        """Count values before they are made. Raises InvalidData if they are too many, or the time is over."""
        self.check_value_limit(count)
        self._left -= count
        if self._left < self._next_look:
            self._check_decoding_time_left()

    def _check_decoding_time_left(self) -> None:
        """Raise InvalidData if the time is over. It is called once in a while, by the count of values."""
        self._next_look = self._left - VALUES_BETWEEN_LOOKS
        if time.monotonic() > self._ends:
            raise InvalidData(f"there was no time for more than its first {MAXIMUM_VALUES - self._left:,} values")

    def check_value_limit(self, count: int) -> None:
        """Raise InvalidData if so many more values would be more than `MAXIMUM_VALUES`. Do not count them."""
        if count > self._left:
            raise InvalidData(f"there are more than {MAXIMUM_VALUES:,} values in it")
