"""What docs/explain.md has its reader do prints what it says."""

from __future__ import annotations

from pathlib import Path

from tests.captures.capturing import Wire, pcap
from tests.captures.frames import HELLO, WELCOME, heartbeat, heartbeat_answer
from tests.test_readme import PORT, README, printed, serving, steps_in

DOCUMENT = README.parent / "docs" / "explain.md"


def test_the_steps_of_the_explain_page_print_the_documented_output(tmp_path: Path) -> None:
    steps = steps_in(DOCUMENT.read_text())
    wire = Wire().open().asks(HELLO).answers(WELCOME).asks(heartbeat(1)).answers(heartbeat_answer(1, 27))
    (tmp_path / "session.pcap").write_bytes(pcap(wire.packets))
    (serve,) = (step for step in steps if step[1] == "minibroker serve\n")
    with serving(serve[1], tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == serve[2].replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            if (kind, code, output) != serve:
                assert printed(kind, code, address, tmp_path).rstrip() == output.rstrip()
