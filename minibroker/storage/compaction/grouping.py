"""Which neighbouring segments become one when they are cleaned, so that a log does not fall apart into tiny ones.

As in Kafka (Cleaner.groupSegmentsBySize), what the segments measure before the cleaning decides. What is written into
the one is `cleaning.py`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from minibroker.storage.log_settings import LogSettings
from minibroker.storage.offset_index import MAX_RELATIVE_OFFSET
from minibroker.storage.segment import Segment

# Kafka has no such bound. Here the files of a group are renamed in one step of the event loop: 50 us a segment.
MAX_GROUP_SEGMENTS = 100


class Source(NamedTuple):
    """A segment to be cleaned, as it was when that was decided: it is closed and does not change.

    `path` is that of its files without suffix, `end_offset` the base offset of the next one.
    """

    segment: Segment
    path: str
    base_offset: int
    end_offset: int
    size_bytes: int


class IndexSizes(NamedTuple):
    """How many bytes a segment's two indexes take."""

    offsets_bytes: int
    times_bytes: int


def grouped(
    sources: Iterable[Source], index_sizes: Callable[[Source], IndexSizes], settings: LogSettings
) -> list[list[Source]]:
    """The segments in groups, each to become one, in which no file grows beyond the settings' sizes.

    Nor do the offsets of a group reach beyond what its indexes can name. A segment that is larger alone stays alone.
    """
    groups: list[list[Source]] = []
    size = offsets = times = 0
    for source in sources:
        indexes = index_sizes(source)
        size += source.size_bytes
        offsets += indexes.offsets_bytes
        times += indexes.times_bytes
        fits = size <= settings.segment_bytes and max(offsets, times) <= settings.segment_index_bytes
        if groups and fits and _can_name(groups[-1], source):
            groups[-1].append(source)
        else:
            groups.append([source])
            size, (offsets, times) = source.size_bytes, indexes
    return groups


def _can_name(group: list[Source], source: Source) -> bool:
    if len(group) >= MAX_GROUP_SEGMENTS:
        return False
    return source.size_bytes == 0 or source.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
