"""The settings of a log: Kafka's topic configs with Kafka's defaults; dots become underscores."""

from __future__ import annotations

from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.records.batch import CREATE_TIME, MAGIC, MAX_RECORD_BYTES

MAX_LONG: Final = (1 << 63) - 1
DAY_MS: Final = 24 * 60 * 60 * 1000

# The values of `compression.type` besides "producer", which leaves the codec to producers.
CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
COMPACT: Final = "compact"


class LogSettings(NamedTuple):
    """The settings of a log, whose names say their units. A log gets a new instance when they change.

    `message_format_version` is the magic byte of the version: 0, 1 or 2. `record_attributes_elide` is None if the topic
    has never had the setting, and so has no such batches.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    max_decompressed_message_bytes: int = MAX_RECORD_BYTES
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

    def get_compression_level(self, codec: int) -> int | None:
        """Return the topic's compression level for a codec, None if the codec has none."""
        levels = {1: self.compression_gzip_level, 3: self.compression_lz4_level, 4: self.compression_zstd_level}
        return levels.get(codec)

    def get_create_time_range(self, now_ms: int) -> tuple[int, int]:
        """Return the first and the last timestamp, ms since 1970, that a topic with CreateTime accepts.

        Without limits it accepts any int64, although the distance from now may exceed an int64.
        """
        before_ms, after_ms = self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms
        if after_ms == before_ms == MAX_LONG:
            return -MAX_LONG - 1, MAX_LONG
        return now_ms - before_ms, now_ms + after_ms

    @property
    def max_segment_ms(self) -> int:
        """How long a segment may be active. In a compacted log, `max.compaction.lag.ms` also limits it."""
        if COMPACT in self.cleanup_policy:
            return min(self.segment_ms, self.max_compaction_lag_ms)
        return self.segment_ms
