"""Random histories in which every promise must be kept: 40, 200 with `--thorough`, more as `simulation.py` tells.

What the histories found is tested by name in the other files.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import Counter
from functools import cache

import pytest

from tests.storage.simulation import Broken, Simulation, run_histories, run_history

BLOCK = 20
BLOCKS = 10
FIRST_BLOCKS = 2

# What must have happened in the 200 histories, and how often at least: a simulation that reaches nothing finds nothing.
REACHED = {
    "append": 800,
    "written together": 200,
    "lost together": 15,
    "killed while batches were pending": 15,
    "commit": 100,
    "abort": 100,
    "segment begun by an append": 1000,
    "roll": 100,
    "flush done": 500,
    "flush failed": 100,
    "offline": 10,
    "truncate": 50,
    "create_again": 60,
    "delete_records": 100,
    "segment deleted": 100,
    "segment swapped in": 100,
    "cleaning done": 20,
    "cleaning given up": 5,
    "checkpoint": 300,
    "stop": 50,
    "kill": 80,
    "killed at an operation": 50,
    "cut_power": 100,
    "recovery": 300,
    "end lost": 50,
    "failed start": 50,
    "failed sync": 20,
    "short write": 100,
    "write lost": 500,
    "write torn": 200,
    "name lost": 500,
    os.strerror(errno.EIO): 100,
    os.strerror(errno.ENOSPC): 50,
    os.strerror(errno.EROFS): 50,
}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Silence what the logs of 200 histories say."""
    caplog.set_level(logging.CRITICAL + 1, "minibroker")


@cache
def run_block(block: int) -> tuple[Counter[str], list[Broken]]:
    return run_histories(range(block * BLOCK, (block + 1) * BLOCK))


@pytest.mark.parametrize(
    "block",
    [*range(FIRST_BLOCKS), *(pytest.param(block, marks=pytest.mark.thorough) for block in range(FIRST_BLOCKS, BLOCKS))],
)
def test_guarantees_hold_in_random_histories_of_a_failing_disk(block: int) -> None:
    _, broken = run_block(block)
    assert not broken, broken[0]


@pytest.mark.thorough
def test_random_disk_histories_include_all_kinds_of_events() -> None:
    counts = sum((run_block(block)[0] for block in range(BLOCKS)), Counter[str]())
    assert {thing: counts[thing] for thing, least in REACHED.items() if counts[thing] < least} == {}


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = Simulation(7), Simulation(7)
    first.run()
    second.run()
    assert first.steps == second.steps
    assert first.promises.batches == second.promises.batches


def test_a_violated_guarantee_is_reported_with_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Simulation) -> None:
        raise AssertionError("a hole")

    monkeypatch.setattr(Simulation, "run", fail)
    with pytest.raises(Broken) as raised:
        run_history(23)
    assert "seed 23: AssertionError: a hole" in str(raised.value)
    assert "python -m tests.storage.simulation --histories 1 --seed 23" in str(raised.value)
