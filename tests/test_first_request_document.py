"""What docs/first-request.md has its reader send by hand is answered as it says."""

from __future__ import annotations

from pathlib import Path

from tests.test_readme import FENCED, PORT, README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "first-request.md"
IN_FILE = "In `by_hand.py`:\n\n"


def test_the_steps_print_what_they_say(tmp_path: Path) -> None:
    before, after = DOCUMENT.read_text().split(IN_FILE)
    shared = FENCED.match(after)
    assert shared is not None
    (_, serve, announcement), *steps = steps_in(before + after[shared.end() :])
    assert len(steps) == 5
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        (tmp_path / "by_hand.py").write_text(shared["text"].replace(PORT, address.rpartition(":")[2]))
        for kind, code, output in steps:
            assert printed(kind, code, address, tmp_path) == output
