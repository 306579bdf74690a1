"""What docs/compaction.md has its reader do prints what it says, once the cleaner has had its time."""

from __future__ import annotations

import time
from pathlib import Path

from tests.running import PATIENCE_S
from tests.test_readme import PORT, README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "compaction.md"


def test_the_steps_of_the_compaction_page_print_the_documented_output(tmp_path: Path) -> None:
    (_, serve, announcement), *steps = steps_in(DOCUMENT.read_text())
    assert len(steps) == 6
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            found = printed(kind, code, address, tmp_path)
            give_up_at = time.monotonic() + PATIENCE_S
            while "consume" in code and found != output and time.monotonic() < give_up_at:
                found = printed(kind, code, address, tmp_path)
            assert found == output
