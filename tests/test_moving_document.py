"""What docs/moving.md and docs/groups.md have their readers do prints what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_readme import PORT, README, printed, serving, steps_in


@pytest.mark.parametrize(("page", "kinds"), [("moving", ["sh", "sh"]), ("groups", ["python", "sh"])])
def test_the_steps_of_the_moving_page_print_the_documented_output(tmp_path: Path, page: str, kinds: list[str]) -> None:
    (_, serve, announcement), *steps = steps_in((README.parent / "docs" / f"{page}.md").read_text())
    assert [kind for kind, _, _ in steps] == kinds
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            shown = printed(kind, code, address, tmp_path).replace(address, f"127.0.0.1:{PORT}")
            assert shown == output
