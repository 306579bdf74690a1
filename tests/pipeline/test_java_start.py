"""How Spark's JVM starts: its errors are one line, and what it writes to stderr arrives there."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from minibroker.pipeline.java import _HeldOutput

START = """
import sys
from minibroker.pipeline.java import StartError
from minibroker.pipeline.session import session
try:
    session("local[1]", **{"spark.driver.memory": sys.argv[1]})
except StartError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("memory", "reason"), [("much", "Invalid maximum heap size: -Xmxmuch"), ("1", "Too small maximum heap")]
)
def test_a_jvm_that_does_not_start_is_reported_in_one_line(memory: str, reason: str) -> None:
    run = subprocess.run([sys.executable, "-c", START, memory], capture_output=True, text=True, timeout=100)
    assert (run.stdout, run.stderr, run.returncode) == (f"Spark does not start: {reason}\n", "", 0)


@pytest.mark.parametrize(("with_start", "passed_on"), [(True, "at the start\nlater\n"), (False, "later\n")])
def test_jvm_output_is_held_back_until_it_is_released(
    with_start: bool, passed_on: str, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    output = _HeldOutput(reading)
    os.write(writing, b"at the start\n")
    while not output._held:
        pass
    output.pass_on(with_start=with_start)
    os.write(writing, b"later\n")
    os.close(writing)
    assert output.read_last_words() == ""
    assert capfd.readouterr().err == passed_on


def test_output_of_an_ended_jvm_is_not_released(capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    output = _HeldOutput(reading)
    os.write(writing, "möglich\n".encode())
    os.close(writing)
    assert output.read_last_words() == "möglich\n"
    assert capfd.readouterr().err == ""
