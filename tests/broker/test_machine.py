"""What the process asks of the machine: where something is not to be had, that is no error."""

from __future__ import annotations

import ctypes
import platform
import resource
import subprocess
import sys

import pytest

from minibroker.broker.machine import keep_freed_memory

SHARED = """
import sys
from minibroker.broker.machine import share_the_interpreter
share_the_interpreter()
print(sys.getswitchinterval())
"""
SPARED = """
import asyncio, gc
from minibroker.broker import machine
machine.spare_the_old()
machine.COLLECTION_SECONDS, machine.IDLE_SECONDS, machine.IDLE_SHARE = 0.01, 0.01, 10
collected = []
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]) if phase == "start" else None)

class Knot:
    pass

kept = []
async def work():
    while gc.get_count()[2] < machine.WORTH_IT:
        knot = Knot()
        knot.self = knot
        kept.append(knot)
    print(2 in collected)
    kept.clear()
    del knot
    collecting = asyncio.create_task(machine.collect_when_idle())
    while 2 not in collected:
        await asyncio.sleep(0.01)
    collecting.cancel()
    print(any(isinstance(each, Knot) for each in gc.get_objects()))

asyncio.run(work())
"""
RAISED = """
import resource
from minibroker.broker.machine import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))
print(raise_descriptor_limit())
"""


def test_glibc_takes_the_thresholds() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")


def test_a_library_without_the_switch_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory()


def test_the_limit_on_open_files_is_raised_as_far_as_it_may() -> None:
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 500)
    script = RAISED.format(hard=hard)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == hard


def test_threads_that_wait_are_let_in_after_a_tenth_of_a_millisecond() -> None:
    ran = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, check=True)
    assert float(ran.stdout) == pytest.approx(0.0001)


def test_old_objects_are_collected_only_once_the_process_is_idle() -> None:
    ran = subprocess.run([sys.executable, "-c", SPARED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False"]
