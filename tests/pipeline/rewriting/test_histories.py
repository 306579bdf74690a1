"""Logs to which much was done by chance, compacted, cut and killed ones too, are the same logs after a rewriting."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.pipeline.rewriting.rewrite_settings import RewriteSettings
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.compression import Compression
from tests.pipeline.rewriting.directories import Seen, batches_of, produced, seen
from tests.pipeline.verifying.support import faults, judge
from tests.pipeline.verifying.test_clean import SETTINGS, History
from tests.storage.support import open_at

STEPS = 60


def history_in(directory: Path, seed: int, *, compacted: bool, is_clean: bool = False) -> History:
    """A log with a past, closed by a clean stop or left by a kill, as it comes."""
    history = History(directory, seed, compacted=compacted, preallocate=False)
    for _ in range(STEPS):
        history.step()
    if is_clean or history.chance.random() < 0.5:
        history.log.close()
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    else:
        history.log.abandon()
    history.check()
    return history


def settings_by(chance: Random) -> RewriteSettings:
    """Any settings of format 2."""
    codec = chance.choice([None, *Compression])
    elide = chance.choice([None, False, True])
    return RewriteSettings(chance.choice([None, MAGIC]), codec, None, chance.choice([None, 100, 1000, 100_000]), elide)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_rewritten_histories_keep_records_and_producers(seed: int, compacted: bool, tmp_path: Path) -> None:
    history_in(tmp_path / "old", seed, compacted=compacted)
    settings = settings_by(Random(seed))
    rewrite_directory(str(tmp_path / "old"), str(tmp_path / "new"), settings)
    old, new = tmp_path / "old" / "orders-0", tmp_path / "new" / "orders-0"
    assert seen(new) == seen(old)
    origins = {each.offset: each for each in produced(new)}
    assert {each.offset: each for each in produced(old)}.items() <= origins.items()
    assert faults(judge(tmp_path / "new", compacted=("orders",) if compacted else ())) == []
    if settings.magic is not None:
        assert {header.magic for header, _ in batches_of(new)} <= {MAGIC}


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("seed", range(15, 22))
def test_an_old_format_keeps_the_view_of_committed_records(seed: int, compacted: bool, tmp_path: Path) -> None:
    history = history_in(tmp_path / "old", seed, compacted=compacted, is_clean=True)
    chance = Random(seed)
    magic = chance.choice((0, 1))
    codec = chance.choice([codec for codec in Compression if codec <= Compression.LZ4])
    settings = RewriteSettings(magic, codec, None, chance.choice([None, 1000]), None, True, True)
    rewrite_directory(str(tmp_path / "old"), str(tmp_path / "new"), settings)
    committed = [
        each._replace(record=each.record._replace(headers=()))
        if magic
        else Seen(each.record._replace(headers=(), timestamp=-1), 0)
        for each in committed_in(tmp_path / "old" / "orders-0", history.log.log_start_offset)
    ]
    start = history.log.log_start_offset
    assert [each for each in seen(tmp_path / "new" / "orders-0") if each.record.offset >= start] == committed
    assert faults(judge(tmp_path / "new", compacted=("orders",))) == []  # which have gaps, as where markers were
    log = open_at(tmp_path / "new" / "orders-0", SETTINGS, log_start_offset=start)
    assert log.log_end_offset == history.log.log_end_offset
    log.abandon()


def committed_in(directory: Path, start: int) -> list[Seen]:
    """Return what a reader of committed records sees in the end: transactions that never end stay hidden."""
    log = open_at(directory, SETTINGS, log_start_offset=start)
    aborted = log.aborted_transactions(start, log.log_end_offset)
    still_open = log.producers.open_transactions
    hidden = set()
    for each in produced(directory):
        ended = any(
            a.producer_id == each.producer_id and a.first_offset <= each.offset <= a.last_offset for a in aborted
        )
        if each.is_transactional and (ended or each.offset >= still_open.get(each.producer_id, each.offset + 1)):
            hidden.add(each.offset)
    log.abandon()
    return [each for each in seen(directory) if each.record.offset >= start and each.record.offset not in hidden]
