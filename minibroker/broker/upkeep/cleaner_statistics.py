"""The cleaner's counters, for the metrics.

They are in a separate file, so that metrics can be served before the cleaner is imported.
"""

from __future__ import annotations


class CleanerStatistics:
    """Sums over all cleanings since the start, including failed ones, except `cleanings`.

    `seconds` is the time they took, `last_seconds` that of the last one; both include waits for the rate limit.
    `running` counts the logs that are being cleaned, `uncleanable` those that no longer are. `max_dirty_ratio`, 0 to 1,
    is that of the dirtiest log at the last check, which was at `looked_ms` (since 1970, 0 if there was none).
    """

    __slots__ = (
        "cleanings",
        "last_seconds",
        "looked_ms",
        "max_dirty_ratio",
        "read_bytes",
        "read_records",
        "running",
        "seconds",
        "uncleanable",
        "written_bytes",
        "written_records",
    )

    def __init__(self) -> None:
        self.cleanings = 0
        self.seconds = self.last_seconds = 0.0
        self.reset_results_of_last_check()
        self.read_bytes = self.written_bytes = self.read_records = self.written_records = 0

    def reset_results_of_last_check(self) -> None:
        """Reset the results of the last check for dirty logs, as the logs were replaced; keep the sums."""
        self.running = self.uncleanable = 0
        self.max_dirty_ratio = 0.0
        self.looked_ms = 0
