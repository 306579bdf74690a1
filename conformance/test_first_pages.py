"""The pages of docs/ that begin with "first", and the first lines of the README, typed in a new clone.

Only the broker's port is another one, so that a machine may run other brokers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.clients import REPOSITORY
from conformance.projects import ONCE
from tests.clients.ports import free_ports
from tests.pages import Block, blocks_of
from tests.running import environment_for_broker

pytestmark = pytest.mark.minibroker_only
PAGES = sorted((REPOSITORY / "docs").glob("first-*.md"))
PORT = "9092"
PATIENCE_S = 500  # an empty cache needs everything from the registries
PACKAGES = ("minibroker", "pyspark_minibroker", "pyspark_minibroker_batches")
NEEDED = (*PACKAGES, "kits", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
AS_ROOT = 'command -v sudo > /dev/null || sudo() { "$@"; }\n'  # whoever has no sudo leaves out the word
TIME = re.compile(r" in [0-9.]+s")
SERVED = """{command} > serve.txt &
trap "kill $!" EXIT
until [ -s serve.txt ]; do kill -0 $!; sleep 0.1; done
cat serve.txt
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The files that pip installs, where a reader has them."""
    listed = subprocess.run(["git", "ls-files", "-z", *NEEDED], cwd=REPOSITORY, capture_output=True, check=True).stdout
    (tmp_path / "clone").mkdir()
    subprocess.run(
        ["xargs", "-0", "cp", "--parents", "-t", tmp_path / "clone"], cwd=REPOSITORY, input=listed, check=True
    )
    return tmp_path / "clone"


def script_of(blocks: Iterable[Block]) -> str:
    """Return what a reader types into one shell, and writes to files."""
    return "\n".join(map(_typed, blocks))


def _typed(block: Block) -> str:
    if block.file:
        return f"cat > {block.file} <<'END OF FILE'\n{block.text}END OF FILE"
    if block.kind == "text":
        return ""
    return SERVED.format(command=block.text.strip()) if block.text.startswith("minibroker serve") else block.text


def readers_environment(port: int) -> dict[str, str]:
    """Return one without the virtual environment of these tests, in which brokers listen on this port."""
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(each for each in os.environ["PATH"].split(os.pathsep) if each != own)
    address = f"127.0.0.1:{port}"
    given = {"MINIBROKER_LISTENERS": f"PLAINTEXT://{address}", "MINIBROKER_BOOTSTRAP_SERVER": address, "PATH": path}
    return environment_for_broker({**ONCE, **given})


def typed(script: str, clone: Path, port: int) -> str:
    """Run what a reader types in a clone, with brokers on this port; return what it prints, without times."""
    done = subprocess.run(
        ["bash", "-ec", script.replace(PORT, str(port))],
        cwd=clone,
        env=readers_environment(port),
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return TIME.sub("", done.stdout)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_first_page_print_the_documented_output(page: Path, clone: Path) -> None:
    blocks, port = list(blocks_of(page.read_text())), free_ports()
    shown = typed(script_of(blocks), clone, port)
    assert all(block.text.replace(PORT, str(port)) in shown for block in blocks if block.kind == "text"), shown


def test_the_first_lines_of_the_readme_start_a_broker(clone: Path) -> None:
    serve, *_ = (block.text for block in blocks_of((REPOSITORY / "README.md").read_text()))
    installed, _, serving = serve.partition(" && minibroker serve")
    assert serving == "\n"
    port = free_ports()
    script = script_of([Block("sh", f"{AS_ROOT}{installed}\n", ""), Block("sh", "minibroker serve\n", "")])
    shown = typed(script, clone, port)
    assert f"minibroker listens on 127.0.0.1:{port}\n" in shown
