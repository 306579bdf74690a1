"""What docs/first-request.md has its reader send by hand is answered as it says."""

from __future__ import annotations

from pathlib import Path

from tests.pages import blocks_of
from tests.test_readme import PORT, README, printed, serving

DOCUMENT = README.parent / "docs" / "first-request.md"
INSTALLED = "\nStart a broker, and leave it running:\n\n"  # conformance/test_first_pages.py does what is before this


def test_the_steps_of_the_first_request_page_print_the_documented_output(tmp_path: Path) -> None:
    serve, announcement, *blocks = blocks_of(DOCUMENT.read_text().split(INSTALLED)[1])
    with serving(serve.text, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.text.replace(f"127.0.0.1:{PORT}", address)
        outputs = []
        for block in blocks:
            if block.file:
                (tmp_path / block.file).write_text(block.text.replace(PORT, address.rpartition(":")[2]))
            elif block.kind == "sh":
                outputs.append(printed("sh", block.text, address, tmp_path))
        assert outputs == [block.text for block in blocks if block.kind == "text"]
