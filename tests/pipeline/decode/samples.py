"""Logs with all kinds of batches in them, one after the other, for the tests of decoding."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from hypothesis import strategies as st

from minibroker.protocol.records.batch import HEADER, read_header, set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.protocol.records.samples import T, records, similar_records

OLD_CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4)


def renumbered(batch: list[Record], base_offset: int, gap: int = 1) -> list[Record]:
    """The records with offsets from `base_offset` on, every `gap`th: such as compaction leaves."""
    return [record._replace(offset=base_offset + index * gap) for index, record in enumerate(batch)]


def old_records(batch: list[Record]) -> list[Record]:
    """Return what formats 0 and 1 can hold of the records: times that are none or not before 1970."""
    return [record._replace(headers=(), timestamp=max(record.timestamp, -1)) for record in batch]


def elided(batch: bytes) -> bytes:
    """The batch without the attributes of its records."""
    return bytes(elide_attributes(batch, read_header(batch)) or b"")


def with_header(batch: bytes, **fields: int) -> bytes:
    """The batch with other fields in its header, and the checksum that is right then."""
    changed = bytearray(batch)
    HEADER.pack_into(changed, 0, *read_header(batch)._replace(**fields))
    set_checksum(changed, 0, len(changed))
    return bytes(changed)


def marker(offset: int, producer_id: int = 7, *, committed: bool = True) -> bytes:
    """A control batch that ends a transaction."""
    record = make_transaction_marker(committed=committed, coordinator_epoch=0, timestamp=T)
    return bytes(
        build_batch(
            [record], base_offset=offset, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
        )
    )


def emptied(offset: int) -> bytes:
    """Return what compaction leaves of a batch whose records are all gone."""
    return with_header(bytes(build_batch([Record(0, T)], base_offset=offset))[:61], record_count=0, batch_length=49)


@st.composite
def logs(draw: st.DrawFn, max_batches: int = 6) -> bytes:
    """Batches of all formats and codecs, with markers, emptied batches and gaps between offsets among them."""
    data, offset = b"", draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(0, max_batches))):
        batch = renumbered(draw(records(max_size=8)), offset, draw(st.sampled_from((1, 1, 3))))
        written = draw(st.sampled_from(WRITERS))(batch, draw)
        *_, (_, last) = iterate_batches_in_any_format(written)
        data, offset = data + written, last.next_offset + draw(st.integers(0, 3))
    return data


def _format_2(batch: list[Record], draw: st.DrawFn) -> bytes:
    return bytes(
        build_batch(
            batch,
            base_offset=batch[0].offset,
            compression=draw(st.sampled_from(Compression)),
            timestamp_type=draw(st.sampled_from((0, 0, 1))),
            keep_offsets=True,
        )
    )


def _elided(batch: list[Record], draw: st.DrawFn) -> bytes:
    return elided(_format_2(batch, draw))


def _old(batch: list[Record], draw: st.DrawFn) -> bytes:
    magic = draw(st.sampled_from((0, 1)))
    codec = draw(st.sampled_from(OLD_CODECS))
    timestamp_type = draw(st.sampled_from((0, 0, magic)))
    return bytes(build_message_set(old_records(batch), magic, compression=codec, timestamp_type=timestamp_type))


def _marker(batch: list[Record], draw: st.DrawFn) -> bytes:
    return marker(batch[0].offset, committed=draw(st.booleans()))


def _emptied(batch: list[Record], draw: st.DrawFn) -> bytes:
    return emptied(batch[0].offset)


def _similar(batch: list[Record], draw: st.DrawFn) -> bytes:
    return _format_2(renumbered(similar_records(Random(draw(st.integers(0, 99)))), batch[0].offset), draw)


WRITERS: tuple[Callable[[list[Record], st.DrawFn], bytes], ...] = (
    _format_2,
    _format_2,
    _elided,
    _old,
    _old,
    _marker,
    _emptied,
    _similar,
)
