"""What the job `rewrite` makes of a log, in any format and codec, is clean too: two programs, written apart, agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.rewriting.directory import rewrite_directory
from minibroker.pipeline.rewriting.rewrite_settings import RewriteSettings
from minibroker.protocol.records.compression import Compression
from minibroker.storage.names import CLEAN_SHUTDOWN
from tests.pipeline.verifying.support import faults, judge
from tests.pipeline.verifying.test_clean import History


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        RewriteSettings(magic=2, codec=Compression.ZSTD, batch_bytes=4096),
        RewriteSettings(codec=Compression.NONE, elide=True),
        RewriteSettings(magic=1, codec=Compression.LZ4, committed_only=True, drop_headers=True),
        RewriteSettings(magic=0, codec=Compression.GZIP, committed_only=True, drop_headers=True),
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
    topics = ["orders"] if compacted or settings.committed_only else []
    assert list((tmp_path / "target" / "orders-0").glob("*.log"))
    assert faults(judge(tmp_path / "target", compacted=topics)) == []
