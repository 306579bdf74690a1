"""The README's quick start, run as a reader runs it, prints what it says. Only the port is another one."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minibroker.broker.configs.settings import Settings
from tests.running import PATIENCE_S, environment_for_broker

README = Path(__file__).parent.parent / "README.md"
PORT = "9092"
CLIENT_COMMAND = re.compile(
    r"\b(minibroker (?:produce|consume|handover"
    r"|(?:topics|groups|transactions|users|acls|quotas|tokens|records) [a-z-]+))\b"
)
LINK = re.compile(r"\]\((?!https?://|#)(?P<file>[^)#]+)(?:#(?P<heading>[^)]+))?\)")
FENCED = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def quick_start() -> list[tuple[str, str, str]]:
    """(kind, code, what it prints) of each step: a block of code and the block of text after it."""
    return steps_in(README.read_text().split("\n## Quick start\n")[1].split("\n## ")[0])


def steps_in(section: str) -> list[tuple[str, str, str]]:
    """The same of any text."""
    blocks = [(found["kind"], found["text"]) for found in FENCED.finditer(section)]
    kinds = [kind for kind, _ in blocks[1::2]]
    assert set(kinds) == {"text"}, "each block of code is followed by what it prints"
    return [(kind, code, output) for (kind, code), (_, output) in zip(blocks[::2], blocks[1::2], strict=True)]


def environment() -> dict[str, str]:
    """One in which this interpreter's own `minibroker` and `python3` come first, as in a reader's venv."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    return environment_for_broker({"PATH": path})


def first_lines(process: subprocess.Popen[str], count: int) -> str:
    assert process.stdout is not None
    lines = b""
    while lines.count(b"\n") < count:
        readable, _, _ = select.select([process.stdout], [], [], PATIENCE_S)
        read = os.read(process.stdout.fileno(), 4096) if readable else b""
        assert read, "the broker says nothing"
        lines += read
    return lines.decode()


@contextmanager
def serving(
    command: str, directory: Path, lines: int = 1, listeners: str | None = "PLAINTEXT://127.0.0.1:0"
) -> Iterator[str]:
    """Run the README's command on a free port until the block ends; what it printed, so many lines."""
    arguments = f"exec {command.strip()}" + (f" --set listeners={listeners}" if listeners else "")
    process = subprocess.Popen(
        arguments, shell=True, cwd=directory, env=environment(), stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield first_lines(process, lines)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()


def printed(kind: str, code: str, address: str, directory: Path) -> str:
    """Return what a step prints on stdout and stderr, with the broker at `address`, without blanks that fill tables."""
    if kind == "sh":
        program = CLIENT_COMMAND.sub(rf"\1 --bootstrap-server {address}", code)
        command = ["sh", "-e", "-c", program]
    else:
        command = ["python3", "-c", code.replace(f"127.0.0.1:{PORT}", address)]
    run = subprocess.run(
        command,
        cwd=directory,
        env=environment(),
        timeout=PATIENCE_S,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.returncode == 0, run.stdout
    return "".join(f"{line.rstrip()}\n" for line in run.stdout.splitlines())


def test_the_quick_start_prints_the_documented_output(tmp_path: Path) -> None:
    (_, serve, announcement), *steps = quick_start()
    assert [kind for kind, _, _ in steps] == ["python", "python", "sh", "sh"]
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        for kind, code, output in steps:
            assert printed(kind, code, address, tmp_path) == output
    assert (tmp_path / "minibroker-data").is_dir()


def test_the_first_command_serves_at_the_documented_address() -> None:
    text = README.read_text()
    settings = Settings({})
    assert "python3 -m pip install -e . && minibroker serve" in text
    assert f"serves on 127.0.0.1:{PORT} with the data in `./minibroker-data`" in text
    assert settings["listeners"] == (f"PLAINTEXT://127.0.0.1:{PORT}",)
    assert list(settings.log_directories) == ["minibroker-data"]


def test_the_links_of_the_readme_exist() -> None:
    for page in (README, README.parent / "SECURITY.md"):
        for found in LINK.finditer(page.read_text()):
            target = README.parent / found["file"]
            assert target.exists(), found[0]
            assert found["heading"] is None or found["heading"] in anchors(target.read_text()), found[0]


def anchors(text: str) -> set[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
