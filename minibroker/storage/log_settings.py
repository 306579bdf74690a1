"""The settings one log runs under: Kafka's topic configs, dots as underscores, with Kafka's defaults.

Where the values come from, and how text becomes a value, is the business of the layer above.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minibroker.protocol.records.batch import CREATE_TIME, MAGIC

MAX_LONG = (1 << 63) - 1
DAY_MS = 24 * 60 * 60 * 1000

# `compression.type` but for "producer", which leaves the codec to producers.
CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPACT: Final = "compact"


class LogSettings(NamedTuple):
    """Units are in the names: bytes, milliseconds. An instance never changes; a log is given another one.

    `message_format_version` is the magic byte that the version stands for: 0, 1 or 2.
    `record_attributes_elide` is None as long as the topic never had the setting: then it holds no such batches.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    message_format_version: int = MAGIC
    message_timestamp_type: int = CREATE_TIME
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    file_delete_delay_ms: int = 60_000
    delete_retention_ms: int = DAY_MS
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    segment_jitter_ms: int = 0
    record_attributes_elide: bool | None = None
    preallocate: bool = False

    def compression_level(self, codec: int) -> int | None:
        """The level that the topic has for a codec; None if that has none."""
        levels = {1: self.compression_gzip_level, 3: self.compression_lz4_level, 4: self.compression_zstd_level}
        return levels.get(codec)

    def create_times(self, now_ms: int) -> tuple[int, int]:
        """Between which times, ms since 1970, a topic with CreateTime wants those of records.

        Without bounds it takes any int64, also those that lie further back from now than an int64 can say.
        """
        before_ms, after_ms = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if after_ms == before_ms == MAX_LONG:
            return -MAX_LONG - 1, MAX_LONG
        return now_ms - before_ms, now_ms + after_ms

    @property
    def max_segment_ms(self) -> int:
        """How long a segment is appended to: a compacted log's ends in time for `max.compaction.lag.ms`, too."""
        if COMPACT in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
