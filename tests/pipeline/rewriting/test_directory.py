"""A rewritten directory holds the same records for its readers, by the same producers, in another form."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
from minibroker.pipeline.rewriting.directory import RewriteReport, rewrite_directory
from minibroker.protocol.records.batch import set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import get_uncompressed_payload
from minibroker.storage.log import Log
from tests.pipeline.rewriting.directories import (
    SMALL,
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
from tests.storage.support import files_in, open_at

NEW = {
    "as it is": RewriteSettings(),
    "no codec": RewriteSettings(codec=Compression.NONE),
    "gzip": RewriteSettings(codec=Compression.GZIP, level=9),
    "snappy in larger batches": RewriteSettings(Compression.SNAPPY, batch_bytes=1000),
    "lz4": RewriteSettings(Compression.LZ4),
    "zstd": RewriteSettings(Compression.ZSTD, level=9),
    "small batches": RewriteSettings(batch_bytes=150),
    "large batches": RewriteSettings(Compression.NONE, batch_bytes=100_000),
}


def rewritten(tmp_path: Path, settings: RewriteSettings) -> RewriteReport:
    return rewrite_directory(str(tmp_path / "old"), str(tmp_path / "new"), settings)


def log_of(directory: Path) -> Log:
    """The log, opened and let go of."""
    log = open_at(directory, SMALL)
    log.close_without_flush()
    return log


def state(directory: Path) -> tuple[object, ...]:
    """Return what a broker knows of a log that it has opened."""
    log = log_of(directory)
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        log.epochs.list_entries(),
        log.producers.encode_snapshot(),
        list(log.list_aborted_transactions(0, log.log_end_offset)),
    )


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
    assert report.total.lost_bytes == 0
    for header, data in batches_of(new):
        if settings.codec is not None and not header.is_control and header.record_count:
            assert header.compression == settings.codec
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
    assert {header.magic for header, _ in batches_of(new)} == {2}


def test_segments_that_need_no_change_are_copied(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, idempotent, transactions, compacted, every_codec)
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
            set_checksum(batch, 0, len(batch))
        add(log, batch)


def late(log: Log) -> None:
    """Records with nanoseconds where milliseconds should be."""
    add(
        log,
        build_batch([record._replace(timestamp=1_700_000_000_000_000_000 + n) for n, record in enumerate(plain(4))]),
    )


def test_a_rewrite_keeps_values_that_rows_cannot_express(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, odd)
    rewritten(tmp_path, RewriteSettings(Compression.GZIP, batch_bytes=100_000))
    after = list(batches_of(new))
    assert [header.record_count for header, _ in after] == [12, 12]
    assert bytes(get_uncompressed_payload(after[0][1], 0, after[0][0])).count(b"\x08ka\xff\xfe\x021") == 1
    assert [each.record for each in seen(new)] == [each.record for each in seen(old)]


def test_timestamps_beyond_sparks_range_are_kept(tmp_path: Path) -> None:
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    make_log(old, late)
    rewritten(tmp_path, RewriteSettings(batch_bytes=100_000))
    assert [each.record.timestamp for each in seen(new)] == [each.record.timestamp for each in seen(old)]
