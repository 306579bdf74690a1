"""What docs/proxy.md has its reader do prints what it says, but for ports and times."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import yaml

from minibroker.testing.faults.rules import parse_rule
from tests.running import PATIENCE_S
from tests.test_readme import FENCED, PORT, README, environment, first_lines, printed, serving

DOCUMENT = README.parent / "docs" / "proxy.md"
PROXY_PORT = "9192"


def same(text: str) -> str:
    """The text without what differs from run to run."""
    return re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", re.sub(r"[\d.]+ ms", "N ms", text)).rstrip()


def test_the_steps_of_the_proxy_page_print_the_documented_output(tmp_path: Path) -> None:
    blocks = [(found["kind"], found["text"]) for found in FENCED.finditer(DOCUMENT.read_text())]
    (_, serve), (_, listens), (_, proxy), (_, proxies), (_, produce), (_, wrote), (_, lines) = blocks[:7]
    (_, replay), (_, differs), (_, faults), (_, program), (_, outcomes) = blocks[7:]
    assert all(map(parse_rule, yaml.safe_load(faults)))
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert same(line) == same(listens)
        command = proxy.strip().replace(f"127.0.0.1:{PORT}", address).replace(PROXY_PORT, "0")
        with subprocess.Popen(
            f"exec {command}", shell=True, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                said = first_lines(process, 1)
                assert same(said) == same(proxies)
                written = printed("sh", produce.replace(f"-b 127.0.0.1:{PROXY_PORT}", ""), said.split()[-1], tmp_path)
                assert written.rstrip() == wrote.rstrip()
                process.send_signal(signal.SIGTERM)
                printed_lines, _ = process.communicate(timeout=PATIENCE_S)
                assert process.returncode == 0
            finally:
                process.kill()
        assert same(printed_lines).startswith(same(lines))
        replayed = subprocess.run(
            replay.replace(f"127.0.0.1:{PORT}", address),
            shell=True,
            cwd=tmp_path,
            env=environment(),
            timeout=PATIENCE_S,
            capture_output=True,
            text=True,
        )
        assert (replayed.stdout, replayed.returncode) == (differs, 1)
        assert printed("python", program, address, tmp_path) == outcomes
    assert (tmp_path / "session.pcap").stat().st_size > 1000
