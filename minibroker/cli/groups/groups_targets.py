"""The new offsets of `minibroker groups reset-offsets`: parsing of options, and arithmetic.

It sends no requests; the ends of logs and the committed offsets are passed in.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC
from typing import Any, NamedTuple

import click

from minibroker.cli.shared import failure
from minibroker.quantities import moment_ms


def moment_of(text: str) -> int:
    """Parse a time, by default in UTC as Kafka's tool takes it, to ms since 1970. Raises click.BadParameter."""
    try:
        return moment_ms(text, time.time_ns() // 1_000_000, UTC)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time like 2026-01-31T12:00:00, 2026-01-31T12:00:00.500+01:00 or '2 hours ago'"
        ) from None


class Target(NamedTuple):
    """A way to choose the new offset; `value` is its number, if it has one."""

    how: str
    value: int = 0

    @property
    def is_bounded(self) -> bool:
        """Return whether the offset can be outside the log, and is then limited to it."""
        return self.how in ("to_offset", "shift_by")

    def timestamp_ms(self, now_ms: int) -> int | None:
        """Return the time whose offsets are needed, in ms since 1970 as `now_ms`, or None."""
        moments = {"by_duration": now_ms - self.value, "to_datetime": self.value}
        return (
            max(0, moments[self.how]) if self.how in moments else None
        )  # negative ones have special meanings in Kafka

    def wanted(
        self, place: tuple[str, int], current: int | None, earliest: int, latest: int, at_time: int | None
    ) -> int:
        """Return the offset for a partition. Raises click.ClickException for a shift without a committed offset."""
        if self.how == "to_offset":
            return self.value
        if self.how == "to_earliest":
            return earliest
        if self.how == "to_current":
            return latest if current is None else current
        if self.how == "shift_by":
            if current is None:
                raise failure(f"cannot shift {place[0]}-{place[1]}: nothing is committed for it")
            return current + self.value
        return latest if at_time is None or at_time < 0 else at_time  # no record is that late


def target_of(given: Mapping[str, Any]) -> Target:
    """Return the target that the options name, of which only one may be given. Raises click.UsageError."""
    chosen = {how: value for how, value in given.items() if value is not None and value is not False}
    if len(chosen) != 1:
        options = ", ".join(f"--{how.replace('_', '-')}" for how in given)
        raise click.UsageError(f"choose one of {options}")
    ((how, value),) = chosen.items()
    return Target(how, int(value))
