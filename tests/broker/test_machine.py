"""What the process asks of the machine: where something is not to be had, that is no error."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys

import pytest

from minibroker.broker.machine import UNSEEN_OBJECTS, keep_freed_memory_in_malloc

SHARED = """
import sys
from minibroker.broker.machine import shorten_thread_switch_interval
shorten_thread_switch_interval()
print(sys.getswitchinterval())
"""
KNOTS = """
import asyncio, collections, gc, itertools
from minibroker.broker import machine

class Knot:
    made = freed = 0
    def __init__(self):
        self.me = self
        Knot.made += 1
    def __del__(self):
        Knot.freed += 1

async def look(*used):
    "Have the process look once whether it is idle; `used` are the seconds of CPU before and after."
    waits = itertools.count(1)
    async def sleep(seconds):
        if next(waits) > 2:
            raise asyncio.CancelledError
        if seconds == machine.COLLECTION_SECONDS:
            between()
    try:
        await machine.collect_garbage_when_idle(sleep, iter(used).__next__)
    except asyncio.CancelledError:
        pass
"""
BUSY = """
machine.freeze_objects_for_gc()
alive, most = collections.deque(maxlen=5_000), 0
for _ in range(1_000_000):
    alive.append(Knot())
    most = max(most, Knot.made - Knot.freed)
print(most)
"""
GROWING = """
looked_at = []
def note(phase, info):
    if phase == "start" and info["generation"] == 2:
        looked_at.append(len(gc.get_objects(2)))
gc.callbacks.append(note)
machine.freeze_objects_for_gc()
alive = [[number] for number in range(1_000_000)]
print(max(looked_at), len(looked_at))
"""
OLD = """
old, young = [Knot()], []
def between():
    old.clear()
    young.extend(Knot() for _ in range({new}))
    if young:
        del young[1:]
asyncio.run(look(0.0, {used}))
print(Knot.made - Knot.freed, any(isinstance(each, Knot) for each in gc.get_objects()))
"""
RAISED = """
import resource
from minibroker.broker.machine import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, {hard}))
print(raise_descriptor_limit())
"""
ROOM = """
from pathlib import Path
from minibroker.broker.machine import grow_descriptor_table
grow_descriptor_table(1000)
print(Path("/proc/self/status").read_text().partition("FDSize:")[2].split()[0])
print(len(list(Path("/proc/self/fd").iterdir())))
"""


def test_glibc_accepts_the_malloc_thresholds() -> None:
    assert keep_freed_memory_in_malloc() == (platform.libc_ver()[0] == "glibc")


def test_a_c_library_without_mallopt_is_left_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    assert not keep_freed_memory_in_malloc()


def test_the_open_file_limit_is_raised_to_its_maximum() -> None:
    resource = pytest.importorskip("resource")
    hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 500)
    script = RAISED.format(hard=hard)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == hard


@pytest.mark.skipif(sys.platform != "linux", reason="only there is a table that can be looked at")
def test_the_file_descriptor_table_grows_before_files_are_opened() -> None:
    pytest.importorskip("fcntl")
    ran = subprocess.run([sys.executable, "-c", ROOM], capture_output=True, text=True, check=True)
    room, opened = map(int, ran.stdout.split())
    assert room >= 1000 - 1
    assert opened < 10


def test_the_thread_switch_interval_is_a_tenth_of_a_millisecond() -> None:
    ran = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, check=True)
    assert float(ran.stdout) == pytest.approx(0.0001)


def test_a_busy_process_holds_little_garbage() -> None:
    ran = subprocess.run([sys.executable, "-c", KNOTS + BUSY], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 5_000 + 1.5 * UNSEEN_OBJECTS


def test_a_busy_process_collects_long_lived_objects_only_once() -> None:
    ran = subprocess.run([sys.executable, "-c", KNOTS + GROWING], capture_output=True, text=True, check=True)
    most, collections = map(int, ran.stdout.split())
    assert collections > 10
    assert most < 2 * UNSEEN_OBJECTS


def test_an_idle_process_collects_old_objects_and_freezes_the_others() -> None:
    assert after_looking_at_the_old(new=1_000_000, used=0.0) == ["1", "False"]


def test_a_busy_process_does_not_collect_old_objects() -> None:
    alive, _ = after_looking_at_the_old(new=1_000_000, used=1.0)
    assert int(alive) > 1


def test_an_idle_process_without_new_objects_does_not_collect_old_ones() -> None:
    assert after_looking_at_the_old(new=0, used=0.0) == ["1", "False"]


def after_looking_at_the_old(new: int, used: float) -> list[str]:
    """Drop an old cycle, make `new` ones and keep one of them; how many are left then, and whether one is not frozen.

    The process has used so many seconds of CPU while it was to be idle.
    """
    script = KNOTS + OLD.format(new=new, used=used)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
