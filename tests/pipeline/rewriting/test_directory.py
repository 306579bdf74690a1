"""A rewritten directory holds the same records for its readers, by the same producers, in another form."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.pipeline.rewriting.report import Report
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.protocol.records.batch import ELIDED_BIT, seal
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import get_payload
from minibroker.storage.log import Log
from minibroker.storage.producers.transaction_markers import Marker, make_marker_batch
from tests.pipeline.rewriting.directories import (
    SMALL,
    Seen,
    add,
    batches_of,
    compacted,
    damages,
    every_codec,
    idempotent,
    make_log,
    old_formats,
    plain,
    produced,
    seen,
    transactions,
)
from tests.storage.support import NOW_MS, files_in, open_at

NEW = {
    "as it is": RewriteSettings(),
    "no codec": RewriteSettings(codec=Compression.NONE),
    "gzip": RewriteSettings(codec=Compression.GZIP, level=9),
    "snappy in larger batches": RewriteSettings(2, Compression.SNAPPY, batch_bytes=1000),
    "lz4": RewriteSettings(2, Compression.LZ4),
    "zstd elided": RewriteSettings(2, Compression.ZSTD, level=9, elide=True),
    "elided": RewriteSettings(2, elide=True),
    "not elided": RewriteSettings(2, elide=False),
    "small batches": RewriteSettings(2, batch_bytes=150),
    "large batches elided": RewriteSettings(2, Compression.NONE, batch_bytes=100_000, elide=True),
}
OLD = {
    "1": RewriteSettings(1, Compression.NONE),
    "1 gzip": RewriteSettings(1, Compression.GZIP, batch_bytes=500),
    "1 lz4": RewriteSettings(1, Compression.LZ4),
    "1 snappy": RewriteSettings(1, Compression.SNAPPY, batch_bytes=100_000),
    "0": RewriteSettings(0, Compression.NONE, batch_bytes=300),
    "0 gzip": RewriteSettings(0, Compression.GZIP),
    "0 lz4": RewriteSettings(0, Compression.LZ4, batch_bytes=500),
}


def rewritten(tmp_path: Path, settings: RewriteSettings) -> Report:
    return rewrite_directory(str(tmp_path / "old"), str(tmp_path / "new"), settings)


def log_of(directory: Path) -> Log:
    """The log, opened and let go of."""
    log = open_at(directory, SMALL)
    log.abandon()
    return log


def state(directory: Path) -> tuple[object, ...]:
    """Return what a broker knows of a log that it has opened."""
    log = log_of(directory)
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.epochs.entries(),
        log.producers.snapshot(),
        list(log.aborted_transactions(0, log.log_end_offset)),
    )


def as_old(records: list[Seen], magic: int) -> list[Seen]:
    """Return what is left of the records in an old format."""
    plain = [each._replace(record=each.record._replace(headers=())) for each in records]
    return plain if magic else [Seen(record._replace(timestamp=-1), 0) for record, _ in plain]


@pytest.mark.parametrize("settings", NEW.values(), ids=NEW)
def test_format_2_keeps_records_producers_transactions_epochs_and_offsets(
    tmp_path: Path, settings: RewriteSettings
) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, partial(idempotent, headers=True), transactions, compacted, partial(every_codec, headers=True))
    report = rewritten(tmp_path, settings)
    assert seen(new) == seen(old)
    assert produced(new) == produced(old)
    markers = [data for header, data in batches_of(old) if header.is_control]
    assert [data for header, data in batches_of(new) if header.is_control] == markers
    assert state(new) == state(old)
    assert damages(new) == []
    assert report.total.records == len(seen(old)) + len(markers)
    assert report.total.dropped_batches == report.total.lost_bytes == 0
    for header, data in batches_of(new):
        if settings.codec is not None and not header.is_control and header.record_count:
            assert header.compression == settings.codec
        if settings.elide is not None and not header.is_control and header.record_count:
            assert bool(header.attributes & ELIDED_BIT) == settings.elide
        if settings.batch_bytes and header.record_count > 1 and header.delete_horizon_ms is None:
            assert header.compression or len(data) <= settings.batch_bytes


@pytest.mark.parametrize("settings", NEW.values(), ids=NEW)
def test_old_formats_are_converted_to_format_2(tmp_path: Path, settings: RewriteSettings) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, old_formats, idempotent, old_formats)
    rewritten(tmp_path, settings)
    assert seen(new) == seen(old)
    assert state(new) == state(old)
    assert damages(new) == []
    if settings.magic == 2:
        assert {header.magic for header, _ in batches_of(new)} == {2}


@pytest.mark.parametrize("settings", OLD.values(), ids=OLD)
def test_all_formats_are_converted_to_old_ones(tmp_path: Path, settings: RewriteSettings) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, idempotent, old_formats, compacted, every_codec)
    report = rewritten(tmp_path, settings)
    assert settings.magic is not None
    kept = settings.codec and not settings.batch_bytes  # wrappers that nobody looked into
    assert report.total.records == (None if kept else len(seen(old)))
    assert seen(new) == as_old(seen(old), settings.magic)
    assert {header.magic for header, _ in batches_of(new)} == {settings.magic}
    assert {header.compression for header, _ in batches_of(new)} == {settings.codec}
    assert state(new)[:2] == state(old)[:2]
    assert damages(new) == []


def test_formats_without_transactions_keep_only_committed_records(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, idempotent, transactions)
    with pytest.raises(RewriteError, match="orders-0 holds transactions"):
        rewritten(tmp_path, RewriteSettings(1))
    report = rewrite_directory(str(tmp_path / "old"), str(tmp_path / "other"), RewriteSettings(1, committed_only=True))
    new = tmp_path / "other" / "orders-0"
    aborted = log_of(old).aborted_transactions(0, 1000)
    hidden = {
        each.offset
        for each in produced(old)
        if each.is_transactional
        and (
            each.producer_id == 10
            or any(
                a.producer_id == each.producer_id and a.first_offset <= each.offset <= a.last_offset for a in aborted
            )
        )
    }
    assert len(hidden) == 14
    assert seen(new) == [each for each in as_old(seen(old), 1) if each.record.offset not in hidden]
    assert state(new)[1] == state(old)[1]
    assert report.total.dropped_batches == 4 + 4 + 1  # markers, aborted batches, one that never ended


def test_headers_are_rejected_or_dropped(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, partial(idempotent, headers=True))
    with pytest.raises(RewriteError, match="orders-0, from offset 0 on: message format 0 has no headers"):
        rewrite_directory(str(tmp_path / "old"), str(tmp_path / "refused"), RewriteSettings(0))
    rewritten(tmp_path, RewriteSettings(0, drop_headers=True))
    assert seen(new) == as_old(seen(old), 0)


def test_a_log_whose_last_marker_is_dropped_continues_at_its_end_offset(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, idempotent, lambda log: add(log, make_marker_batch(1, 0, Marker(True, 0), NOW_MS)))
    rewritten(tmp_path, RewriteSettings(1, committed_only=True))
    assert state(new)[1] == state(old)[1]
    assert [path.stat().st_size for path in sorted(new.glob("*.log"))][-1] == 0


def test_segments_that_need_no_change_are_copied(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, idempotent, transactions, old_formats, compacted, every_codec)
    rewritten(tmp_path, RewriteSettings())
    indexes = ".index", ".timeindex"  # made anew, at Kafka's own distances
    same = {name: data for name, data in files_in(old).items() if not name.endswith(indexes)}
    assert {name: data for name, data in files_in(new).items() if not name.endswith(indexes)} == same


def odd(log: Log) -> None:
    """Batches between others of the same producer: a header key that is no UTF-8, and far-off times."""
    for number, oddity in enumerate(["", "key", "", "late", "early", ""]):
        records = plain(4, number, headers=True)
        if oddity == "key":
            records[2] = records[2]._replace(headers=(("kaÿ", b"1"),))
        elif oddity:
            records[1] = records[1]._replace(timestamp=2**62 if oddity == "late" else -(2**61))
        batch = build_batch(records, producer_id=3, producer_epoch=0, base_sequence=4 * number)
        if oddity == "key":
            batch = batch.replace("kaÿ".encode(), b"ka\xff\xfe")
            seal(batch, 0, len(batch))
        add(log, batch)


def late(log: Log) -> None:
    """Records with nanoseconds where milliseconds should be."""
    add(
        log,
        build_batch([record._replace(timestamp=1_700_000_000_000_000_000 + n) for n, record in enumerate(plain(4))]),
    )


def test_negative_timestamps_are_rejected_for_an_old_format(tmp_path: Path) -> None:
    make_log(tmp_path / "old" / "orders-0", odd)
    with pytest.raises(
        RewriteError, match=r"orders-0, from offset 12 on: message format 1 has no time -2305843009213693952"
    ):
        rewritten(tmp_path, RewriteSettings(1, Compression.NONE, drop_headers=True))


def test_values_that_rows_cannot_express_are_kept(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, odd)
    rewritten(tmp_path, RewriteSettings(2, Compression.GZIP, batch_bytes=100_000))
    before, after = list(batches_of(old)), list(batches_of(new))
    assert [header.record_count for header, _ in after] == [4, 4, 4, 12]
    assert bytes(get_payload(after[1][1], 0, after[1][0])) == before[1][1][61:]
    assert [each.record.timestamp for each in seen(new)] == [each.record.timestamp for each in seen(old)]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_timestamps_beyond_sparks_range_are_kept_in_another_format(codec: Compression, tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, late)
    rewritten(tmp_path, RewriteSettings(1, codec, drop_headers=True))
    assert {header.magic for header, _ in batches_of(new)} == {1}
    assert [each.record.timestamp for each in seen(new)] == [each.record.timestamp for each in seen(old)]


def test_a_codec_that_an_old_format_lacks_is_rejected_unless_replaced(tmp_path: Path) -> None:
    make_log(tmp_path / "old" / "orders-0", every_codec)
    with pytest.raises(
        RewriteError, match=r"orders-0/\d+\.log: offset 144 is compressed by zstd, which formats 0 and 1"
    ):
        rewritten(tmp_path, RewriteSettings(1))
