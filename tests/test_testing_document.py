"""What docs/testing.md and its pages have readers paste works as it stands, and their tables name all that there is."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import Callable, Collection
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import pytest

from minibroker.testing import Broker
from minibroker.testing.faults.rules import WORDS, FaultArgument
from tests.running import PATIENCE_S
from tests.test_readme import FENCED, PORT, README, environment, printed, serving

DOCS = README.parent / "docs"
PAGES = ("testing", "testing-faults", "testing-time", "testing-security", "testing-groups", "testing-http", "emulation")
ROW = re.compile(r"^\| (?P<first>`.*?) \| (?P<second>.*?) \|(?: (?P<third>.*?) \|)?$", re.MULTILINE)
NAMED = re.compile(r"In `(?P<name>[\w.]+)`:\n\n$")
CHANGING = re.compile(r"127\.0\.0\.1:\d+|\d+\.\d+ ms|#\d+|(?<=ApiVersions )\d+|(?<=Produce )\d+")
CONTROL_PORT = "8082"
VALUES = {str: "text", int: "number", bool: "`True`", Collection: "list", Callable: "function"}
RECIPES_PATIENCE_S = 240  # all of them, one after the other


class Block(NamedTuple):
    """A block of code: its kind, its text, and the file that it is to be in, if the page says."""

    kind: str
    text: str
    name: str | None

    @property
    def is_test(self) -> bool:
        return self.kind == "python" and re.search(r"^(async )?def test_", self.text, re.MULTILINE) is not None


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def section(title: str) -> str:
    """Return a section of the first page."""
    return page("testing").split(f"\n## {title}\n")[1].split("\n## ")[0]


def blocks(text: str) -> list[Block]:
    found = []
    for each in FENCED.finditer(text):
        first = each["text"].splitlines()[0]
        named = NAMED.search(text[: each.start()])
        name = named["name"] if named else first.removeprefix("# ") if re.fullmatch(r"# [\w.]+", first) else None
        found.append(Block(each["kind"], each["text"], name))
    return found


def run(directory: Path, *command: str, patience_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=environment(), timeout=patience_s, capture_output=True, text=True)


def pytest_in(directory: Path) -> subprocess.CompletedProcess[str]:
    ours = ("-p", "minibroker.testing.plugin")  # also where it is another checkout than the one that is installed
    command = (sys.executable, "-m", "pytest", "-q", "--strict-markers", *ours)
    return run(directory, *command, patience_s=RECIPES_PATIENCE_S)


@pytest.mark.timeout(RECIPES_PATIENCE_S + 60)
def test_every_recipe_for_pytest_passes(tmp_path: Path) -> None:
    found = blocks("\n".join(page(name) for name in PAGES))
    recipes = [block for block in (*found, *blocks(README.read_text())) if block.is_test and block.name is None]
    assert len(recipes) >= 15
    for number, block in enumerate(recipes):
        (tmp_path / f"test_{number}.py").write_text(block.text)
    for block in found:
        if block.kind in ("yaml", "json"):
            assert block.name is not None
            (tmp_path / block.name).write_text(block.text)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "count"), [("testing", 3), ("testing-security", 2)])
def test_every_script_prints_the_documented_output(tmp_path: Path, name: str, count: int) -> None:
    found = [block for block in blocks(page(name)) if block.name is None]
    scripts = [(block, output) for block, output in pairwise(found) if block.kind == "python" and not block.is_test]
    assert len(scripts) == count
    for script, output in scripts:
        done = run(tmp_path, sys.executable, "-c", script.text)
        assert (output.kind, done.stdout) == ("text", output.text), done.stderr


def test_a_conftest_sets_settings_for_all_brokers(tmp_path: Path) -> None:
    (conftest,) = (block for block in blocks(section("pytest")) if block.name == "conftest.py")
    (tmp_path / "conftest.py").write_text(conftest.text)
    last_partition = "def test_it(kafka): assert kafka.produce('t', 'a', partition=5) == 0\n"
    (tmp_path / "test_settings.py").write_text(last_partition)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["test_failing.py", "test_waiting.py"])
def test_a_failure_is_reported_as_documented(tmp_path: Path, name: str) -> None:
    found = blocks(section("pytest"))
    number = next(number for number, block in enumerate(found) if block.name == name)
    (tmp_path / name).write_text(found[number].text)
    done = pytest_in(tmp_path)
    assert done.returncode == 1
    reported = {CHANGING.sub("*", line) for line in done.stdout.splitlines()}
    shown = {CHANGING.sub("*", line) for line in found[number + 1].text.splitlines()}
    assert shown - reported == set(), done.stdout


@pytest.mark.parametrize(
    ("name", "begin", "count"), [("testing-http", "", 3), ("testing-security", "## Security in other languages", 1)]
)
def test_the_http_steps_print_the_documented_output(tmp_path: Path, name: str, begin: str, count: int) -> None:
    (_, serve, _), (_, announced, _), *steps = blocks(page(name).partition(begin)[2] if begin else page(name))
    assert [block.kind for block in steps] == ["sh", "text"] * count
    with serving(serve.replace(CONTROL_PORT, "0"), tmp_path, lines=2) as lines:
        listens, controlled = lines.splitlines()
        address, url = (line.rpartition(" ")[2] for line in (listens, controlled))
        assert lines == announced.replace(f"127.0.0.1:{PORT}", address).replace(f"http://127.0.0.1:{CONTROL_PORT}", url)
        for step, output in zip(steps[::2], steps[1::2], strict=True):
            code = step.text.replace(f"localhost:{CONTROL_PORT}", url)
            assert printed("sh", code, address, tmp_path) == output.text
    assert (tmp_path / "data-of-tests").is_dir() and not (tmp_path / "minibroker-data").exists()


def values_of(kinds: tuple[Any, ...], declared: FaultArgument) -> str:
    if timedelta in kinds:
        return "duration"
    if declared.minimum > -math.inf:
        return f"number from {declared.minimum}" + (f" to {declared.maximum}" if declared.maximum < math.inf else "")
    choices = [f'`"{choice}"`' for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    return ", ".join(choices) or " or ".join(VALUES[get_origin(kind) or kind] for kind in kinds)


@pytest.mark.parametrize("table", ["match", "act", "trigger"])
def test_the_documented_fault_tables_are_those_of_the_grammar(table: str) -> None:
    rows = [
        f"| `{word}` | {values_of(kinds, declared)} | {declared.meaning} |"
        for word, (kinds, declared) in WORDS.items()
        if declared.table == table
    ]
    assert "\n".join([f"| {table} | value | |", "| --- | --- | --- |", *rows, ""]) in page("testing-faults")


def test_every_method_is_documented() -> None:
    text = "".join(page(name) for name in PAGES)
    verbs = {name for name in dir(Broker()) if not name.startswith("_") and callable(getattr(Broker, name, None))}
    awaited = {name for name in verbs if name[1:] in verbs}
    assert {name for name in verbs - awaited - {"start", "stop"} if not re.search(rf"\b{name}\(", text)} == set()


def test_the_documented_table_has_every_http_path_of_the_control() -> None:
    from minibroker.testing.control.app import make_control_app

    async def described() -> dict[str, set[str]]:
        async with Broker() as broker:
            paths = make_control_app(broker).openapi_document["paths"]
            return {path: {method.upper() for method in methods} for path, methods in paths.items()}

    table = {row["first"].strip("`"): set(row["second"].split(", ")) for row in ROW.finditer(page("testing-http"))}
    assert table == asyncio.run(described())
