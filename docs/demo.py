"""The demo of the README: runs a session in a terminal of 80 columns, and draws what is there to be seen.

    python3 -m docs.demo > docs/demo.svg

Only the port is another one. Without animation, as in a page that is printed, the whole session is shown.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from tests.test_readme import CLIENT_COMMAND, PORT, environment, serving

TEST = """\
from confluent_kafka import Producer


def test_an_order_is_written_once_although_the_leader_moves(kafka):
    kafka.faults.add(api="Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce("orders", "tea")
    producer.flush()
    assert [record.text for record in kafka.expect("orders")] == ["tea"]


def test_orders_are_gone_after_a_week(kafka):
    kafka.produce("orders", "tea")
    kafka.clock.advance("8 days")
    assert kafka.records("orders") == []
"""
COMMANDS = (
    r"printf 'tea\ncoffee\n' | minibroker produce orders",
    "minibroker consume orders",
    "cat test_orders.py",
    "python3 -m pytest -q",
)
COLUMNS, ROWS = 80, 40
CLEARED = re.compile(r"^.*\r\x1b\[K", re.MULTILINE)  # the progress of a command that takes long
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
TIME = re.compile(r" in [0-9.]+s( \([0-9:]+\))?")  # that of pytest, which is another one each time
CHARACTER, LINE, MARGIN = 8.4, 19, 16  # pixels
READING_S, ANSWER_S, LINE_S = 2.0, 0.5, 0.4


class Shown(NamedTuple):
    """A line of the terminal, and when it appears, in seconds from the start."""

    text: str
    at_s: float
    is_command: bool


def session() -> Iterator[tuple[str, list[str]]]:
    """Run the commands; yield each with the lines that it prints."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "test_orders.py").write_text(TEST)
        with serving("minibroker serve", Path(directory)) as line:
            address = line.rpartition(" ")[2].strip()
            yield "minibroker serve &", [line.strip().replace(address, f"127.0.0.1:{PORT}")]
            for command in COMMANDS:
                program = CLIENT_COMMAND.sub(rf"\1 --bootstrap-server {address}", command)
                yield command, in_terminal(program, directory)


def in_terminal(command: str, directory: str) -> list[str]:
    """Run a command in a terminal, and return the lines that it shows at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {**environment(), "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider"}  # which the tests here have not
    process = subprocess.Popen(command, shell=True, cwd=directory, env=own, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 4096):
            written += piece
    except OSError:  # EIO: nobody writes any more
        pass
    os.close(ours)
    assert process.wait() == 0, written.decode()
    return seen(written.decode())


def seen(written: str) -> list[str]:
    """Return the lines that stay in a terminal of what is written to it, without pytest's time."""
    return TIME.sub("", CONTROL.sub("", CLEARED.sub("", written))).rstrip("\n").split("\n")


def shown(steps: Iterator[tuple[str, list[str]]]) -> Iterator[Shown]:
    """Yield the lines in the order in which they appear."""
    now_s = 0.0
    for command, lines in steps:
        yield Shown(f"$ {command}", now_s, True)
        for number, line in enumerate(lines):
            yield Shown(line.rstrip(), now_s + ANSWER_S + number * LINE_S / 4, False)
        now_s += READING_S + LINE_S * len(lines)


def drawn(lines: list[Shown]) -> str:
    """Return the picture, as SVG with an animation that needs no script."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = "".join(
        f'<text class="{"c" if line.is_command else "o"}" x="{MARGIN}" y="{MARGIN + (row + 0.75) * LINE:g}"'
        f' style="animation-delay:{line.at_s:.2f}s">{escape(line.text, quote=False)}</text>\n'
        for row, line in enumerate(lines)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title>A session: a broker, a producer, a consumer, and two tests</title>
<style>
rect {{ fill: #1e1e2e }}
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre }}
text {{ animation: s .1s both }}
.c {{ fill: #a6e3a1 }}
.o {{ fill: #cdd6f4 }}
@keyframes s {{ from {{ opacity: 0 }} }}
@media (prefers-reduced-motion) {{ text {{ animation: none }} }}
</style>
<rect width="100%" height="100%" rx="8"/>
{rows}</svg>
"""


if __name__ == "__main__":
    print(drawn(list(shown(session()))), end="")
