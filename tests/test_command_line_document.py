"""What docs/command-line.md has its reader do prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.test_readme import PORT, README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "command-line.md"


def test_the_steps_of_the_command_line_page_print_the_documented_output(tmp_path: Path) -> None:
    (_, serve, announcement), *steps = steps_in(DOCUMENT.read_text())
    assert len(steps) == 13
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            assert printed(kind, code, address, tmp_path) == output
