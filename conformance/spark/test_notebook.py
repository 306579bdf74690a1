"""The pipeline in a notebook: a real kernel, with a session of its user on Spark Connect, as on Databricks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from conformance import builds
from tests.pipeline.sink.committed import create_topic
from tests.running import RunningBroker, running_broker
from tests.test_readme import FENCED

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "pipeline.md").read_text()
PATIENCE_S = 280

pytestmark = [pytest.mark.minibroker_only, pytest.mark.thorough, pytest.mark.timeout(2 * PATIENCE_S)]
THEIR_SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").getOrCreate()
"""
READABLE = 'spark.conf.set("spark.sql.connect.serverStacktrace.enabled", "false")'
MISTAKE = 'spark.read.format("minibroker").options(subscrib="orders", path="/nowhere").load()'
VERIFIED = """
from minibroker.pipeline.engines import SparkEngine
from minibroker.pipeline.verifying.verify_job import verify
print(verify("minibroker-data", topics=["orders"], engine=SparkEngine(spark)).num_rows)
"""


def shown(cells: list[str], directory: Path) -> list[dict[str, Any]]:
    """What a notebook in this directory shows below each cell."""
    folder = Path(__file__).parent / "notebook"
    path = os.pathsep.join((str(builds.notebook()), str(ROOT)))
    run = subprocess.run(
        [sys.executable, str(folder / "main.py")],
        input=json.dumps(cells),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, run.stderr[-5000:]
    found: list[dict[str, Any]] = json.loads(run.stdout)
    return found


def quick_start(broker: RunningBroker) -> tuple[str, list[str]]:
    """The document's first program, in a session that there is, on a whole path, and the lines that it prints."""
    section = DOCUMENT.split("\n## In a minute\n")[1].split("\n## ")[0]
    blocks = list(FENCED.finditer(section))
    (number,) = [number for number, block in enumerate(blocks) if block["kind"] == "python"]
    program = blocks[number]["text"].replace("spark.stop()\n", "").replace("127.0.0.1:9092", broker.bootstrap_servers)
    program = program.replace("import session\n", "import register\n").replace(
        'spark = session("local[2]")', "register(spark)"
    )
    assert 'path="minibroker-data"' in program
    return program.replace('"minibroker-data"', repr(str(broker.directory / "data"))), blocks[number + 1][
        "text"
    ].splitlines()


def test_the_quick_start_runs_in_an_existing_session(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "orders", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for key, value in (("tea", "green"), ("cake", "plum"), ("tea", "black")):
            producer.produce("orders", value, key)
        assert producer.flush(60) == 0
        (tmp_path / "minibroker-data").symlink_to(tmp_path / "data")
        program, printed = quick_start(broker)
        cells = [THEIR_SESSION, program, READABLE, MISTAKE, VERIFIED]
        _, started, _, mistake, verified = shown(cells, tmp_path)
    assert (started["error"], verified["text"]) == (None, "0\n")
    assert [line for line in started["text"].splitlines() if "106" not in line] == [
        line for line in printed if "106" not in line
    ]
    assert "OptionError: unknown option subscrib; did you mean subscribe?" in mistake["error"]
    assert len(mistake["error"].splitlines()) < 8
