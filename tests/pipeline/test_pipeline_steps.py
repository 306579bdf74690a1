"""What docs/pipeline.md has its reader do in a minute prints what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_readme
from tests.test_readme import PORT, README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "pipeline.md"
PATIENCE_S = 200  # two JVMs start, on a machine that has other things to do


@pytest.mark.timeout(500)
@pytest.mark.xdist_group("spark")
def test_the_steps_print_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_readme, "PATIENCE_S", PATIENCE_S)
    section = DOCUMENT.read_text().split("\n## In a minute\n")[1].split("\n## ")[0]
    (_, serve, announcement), *steps = steps_in(section)
    assert [kind for kind, _, _ in steps] == ["sh", "sh", "python"]
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            assert printed(kind, code.replace(f"127.0.0.1:{PORT}", address), address, tmp_path) == output
