"""What the job `rewrite` makes of a log, in any codec, is clean too: two programs, written apart, agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.rewriting.batch_conversion import RewriteSettings
from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.protocol.records.compression import Compression
from minibroker.storage.names import CLEAN_SHUTDOWN
from tests.pipeline.verifying.support import faults, judge
from tests.pipeline.verifying.test_clean import History


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        RewriteSettings(codec=Compression.ZSTD, batch_bytes=4096),
        RewriteSettings(codec=Compression.NONE),
    ],
)
def test_a_rewritten_directory_has_no_findings(settings: RewriteSettings, compacted: bool, tmp_path: Path) -> None:
    source = tmp_path / "source"
    history = History(source, 5, compacted=compacted, preallocate=False)
    for _ in range(60):
        history.step()
    history.restart()
    history.log.close()
    history.check()
    (source / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":-1}')  # as a broker's clean stop leaves it
    rewrite_directory(str(source), str(tmp_path / "target"), settings)
    topics = ["orders"] if compacted else []
    assert list((tmp_path / "target" / "orders-0").glob("*.log"))
    assert faults(judge(tmp_path / "target", compacted=topics)) == []
