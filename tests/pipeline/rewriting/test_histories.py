"""Logs to which much was done by chance, compacted, cut and killed ones too, are the same logs after a rewriting."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.protocol.records.batch import MAGIC
from minibroker.protocol.records.compression import Compression
from tests.pipeline.rewriting.directories import batches_of, produced, seen
from tests.pipeline.verifying.support import faults, judge
from tests.pipeline.verifying.test_clean import History

STEPS = 60


def history_in(directory: Path, seed: int, *, compacted: bool) -> None:
    """A log with a past, closed by a clean stop or left by a kill, as it comes."""
    history = History(directory, seed, compacted=compacted, preallocate=False)
    for _ in range(STEPS):
        history.step()
    if history.chance.random() < 0.5:
        history.log.close()
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')
    else:
        history.log.close_without_flush()
    history.check()


def settings_by(chance: Random) -> RewriteSettings:
    """Any settings."""
    codec = chance.choice([None, *Compression])
    return RewriteSettings(codec, None, chance.choice([None, 100, 1000, 100_000]))


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
    assert {header.magic for header, _ in batches_of(new)} <= {MAGIC}
