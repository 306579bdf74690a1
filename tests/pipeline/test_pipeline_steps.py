"""What docs/pipeline.md has its reader do runs, and what it does in a minute prints what it says.

All of it runs in the session of all tests, as the JVMs of a reader's processes would take a minute.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result
from confluent_kafka import Producer

from minibroker.registry.state.schema_records import make_schema_entry
from tests.pipeline.schemas_topic import ANN, USER
from tests.pipeline.sink.committed import create_topic
from tests.running import running_broker
from tests.test_readme import FENCED, PORT, printed, serving, steps_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()
PATHS = re.compile(
    r"""((?:--path|--out|--from|--plot) |["'])"""
    r"(minibroker-data|archive|[a-z]+-parquet|[a-z]+-checkpoint|report\.html)"
    r"""(?=["'/\s]|$)"""
)
VISITS = (b'{"user": "ada", "page": "/", "ms": 12}', b'{"user": "bob", "page": "/tea", "ms": 30}', b"no json")


def blocks() -> list[tuple[str, str]]:
    """(kind, text) of each block outside of the steps that another test runs."""
    first, rest = DOCUMENT.split("\n## In a minute\n")
    return [(found["kind"], found["text"]) for found in FENCED.finditer(first + rest.split("\n## ", 1)[1])]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A broker with the topics that the document has, whose log directory is `minibroker-data`."""
    with running_broker(tmp_path) as broker:
        servers = broker.bootstrap_servers
        for topic in ("orders", "prices", "visits", "users", "_schemas", "orders-copy", "orders-again"):
            create_topic(servers, topic, 2)
        producer = Producer({"bootstrap.servers": servers})
        for number in range(6):
            producer.produce("orders", key=b"%d" % number, value=b"tea")
            producer.produce("prices", key=b"%d" % (number % 2), value=b"%d" % number)
            producer.produce("visits", key=b"%d" % number, value=VISITS[number % 3])
        named, schema = make_schema_entry(USER)
        producer.produce("_schemas", key=named, value=schema, partition=0)
        producer.produce("users", ANN)
        producer.produce("users", b"ann")
        assert producer.flush(60) == 0
        (tmp_path / "minibroker-data").symlink_to(tmp_path / "data")
        yield servers


@pytest.fixture
def command(job: Callable[..., Result]) -> Callable[[str], str]:
    """Return what runs a command of the document in the session of all tests."""

    def run(line: str) -> str:
        program, group, *arguments = shlex.split(line)
        assert (program, group) == ("minibroker", "pipeline")
        result = job(*arguments)
        assert result.exit_code == 0, f"{line}\n{result.output}"
        return "".join(f"{each.rstrip()}\n" for each in result.stdout.splitlines())

    return run


@pytest.mark.timeout(400)
def test_the_quick_steps_print_the_documented_output(
    spark: SparkSession, command: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (_, serve, announcement), *steps = steps_in(DOCUMENT.split("\n## In a minute\n")[1].split("\n## ")[0])
    assert [kind for kind, _, _ in steps] == ["sh", "sh", "python"]
    monkeypatch.chdir(tmp_path)
    with serving(serve, tmp_path) as line:
        address = line.removeprefix("minibroker listens on ").strip()
        assert line == announcement.replace(f"127.0.0.1:{PORT}", address)
        (_, produce, produced), (_, archive, archived), (_, program, rows) = steps
        assert printed("sh", produce, address, tmp_path) == produced
        assert command(here(archive, address, tmp_path)) == archived.replace("to archive", f"to {tmp_path}/archive")
        out = io.StringIO()
        with redirect_stdout(out):
            exec(here(program.removesuffix("spark.stop()\n"), address, tmp_path), {})
        assert "".join(f"{each.rstrip()}\n" for each in out.getvalue().splitlines()) == rows


def here(text: str, address: str, directory: Path) -> str:
    """Return code of the document for this broker and directory: Spark's processes have other working directories."""
    return PATHS.sub(rf"\1{directory}/\2", text.replace(f"127.0.0.1:{PORT}", address))


@pytest.mark.timeout(600)
def test_each_documented_code_block_runs(
    spark: SparkSession, address: str, command: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: dict[str, Any] = {}
    monkeypatch.chdir(tmp_path)
    for kind, text in blocks():
        code = here(text, address, tmp_path)
        if kind == "python":
            exec(compile(code, text[:60], "exec"), names)
        elif kind == "sh":
            for line in code.splitlines():
                if "--continuous" not in line and "old-data" not in line:  # these have tests of their own
                    command(line)
    assert names["end"] == names["latest"] != {}  # the stream has no lag
