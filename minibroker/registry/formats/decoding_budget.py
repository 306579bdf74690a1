"""How many values may be made of the data of one record: a few bytes may stand for any number of them."""

from __future__ import annotations

from typing import Final

from minibroker.registry.formats.schema import InvalidData

MAXIMUM_VALUES: Final = 1_000_000  # which take about 100 MB, and a second
MAXIMUM_DEPTH: Final = 100


class Values:
    """The values that were made of some data."""

    def __init__(self) -> None:
        self._left = MAXIMUM_VALUES

    def make(self, count: int = 1) -> None:
        """Count values, before they are made. Raises InvalidData."""
        self.expect(count)
        self._left -= count

    def expect(self, count: int) -> None:
        """Raise InvalidData if there is no room for so many values."""
        if count > self._left:
            raise InvalidData(f"there are more than {MAXIMUM_VALUES:,} values in it")
