"""What replaces what Windows lacks: the same functions on files, the loop, signals, and ports that are shared.

`pytest --bare` runs any other test in such a world; these run in every one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from minibroker import operating_system
from minibroker.operating_system import OpenFiles

ROOT = Path(__file__).parent.parent
BARE = ROOT / "tests" / "bare"
ENDED = """
import asyncio, os, signal
from minibroker.operating_system import make_event_loop, call_on_end_signals
async def run():
    ended = asyncio.Event()
    call_on_end_signals(asyncio.get_running_loop(), ended.set)
    asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), signal.{name})
    await ended.wait()
    print("ended", type(asyncio.get_running_loop()).__module__)
with asyncio.Runner(loop_factory=make_event_loop) as runner:
    runner.run(run())
"""
SERVED = """
from minibroker import operating_system
from minibroker.testing import Broker
with Broker() as broker:
    from kafka import KafkaProducer
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    for number in range(100):
        producer.send("t", bytes(10_000))
    producer.flush()
    producer.close()
    broker.restart()
    print(len(broker.records("t")), operating_system.HAS_POSITIONED_IO, operating_system.HAS_SENDFILE)
"""


@pytest.fixture
def files() -> OpenFiles:
    return OpenFiles()


def opened(files: OpenFiles, path: Path) -> int:
    path.parent.mkdir(exist_ok=True)
    return files.open_file(str(path), os.O_RDWR | os.O_CREAT)


def test_a_file_is_read_and_written_at_positions(files: OpenFiles, tmp_path: Path) -> None:
    handle = opened(files, tmp_path / "a")
    assert files.write_at(handle, b"0123456789", 2) == 10
    assert files.read_at(handle, 4, 4) == b"2345"
    files.truncate_file(handle, 5)
    files.sync_file(handle)
    assert files.size_of_file(handle) == 5
    assert files.read_at(handle, 100, 0) == b"\0\0" + b"012"
    files.close_file(handle)
    with pytest.raises(OSError) as raised:
        files.read_at(handle, 1, 0)
    assert raised.value.errno == errno.EBADF


def test_threads_do_not_affect_each_others_file_position(files: OpenFiles, tmp_path: Path) -> None:
    handle = opened(files, tmp_path / "a")
    files.write_at(handle, bytes(range(256)) * 16, 0)
    wrong: list[int] = []

    def read(start: int) -> None:
        for position in range(start, 4096, 4):
            if files.read_at(handle, 1, position) != bytes([position % 256]):
                wrong.append(position)

    threads = [threading.Thread(target=read, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_open_file_can_be_used_under_its_new_name(files: OpenFiles, tmp_path: Path) -> None:
    handle = opened(files, tmp_path / "a")
    files.write_at(handle, b"before ", 0)
    files.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    files.write_at(handle, b"after", 7)
    assert (tmp_path / "b").read_bytes() == b"before after"


def test_open_files_move_with_their_directory(files: OpenFiles, tmp_path: Path) -> None:
    inside, beside = opened(files, tmp_path / "t-0" / "log"), opened(files, tmp_path / "t-01" / "log")
    files.write_at(inside, b"inside", 0)
    files.write_at(beside, b"beside", 0)
    files.rename(str(tmp_path / "t-0"), str(tmp_path / "t-0.deleted"))
    assert files.read_at(inside, 10, 0) == b"inside"
    assert files.read_at(beside, 10, 0) == b"beside"
    assert (tmp_path / "t-0.deleted" / "log").read_bytes() == b"inside"


def test_a_failed_rename_leaves_the_file_unchanged(files: OpenFiles, tmp_path: Path) -> None:
    handle = opened(files, tmp_path / "a")
    files.write_at(handle, b"still", 0)
    with pytest.raises(OSError):
        files.rename(str(tmp_path / "a"), str(tmp_path / "missing" / "a"))
    assert files.read_at(handle, 10, 0) == b"still"


@pytest.mark.parametrize("called", ["replace", "open"])
def test_a_file_whose_owner_is_collected_during_a_rename_stays_closed(
    files: OpenFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    handle, descriptors, open_file = opened(files, tmp_path / "old"), [], os.open

    def note(*arguments: Any) -> int:
        descriptors.append(open_file(*arguments))
        return descriptors[-1]

    def collect(*arguments: Any) -> Any:
        files.close_file(handle)
        return call(*arguments)

    monkeypatch.setattr(os, "open", note)
    call = getattr(os, called)
    monkeypatch.setattr(os, called, collect)
    files.rename(str(tmp_path / "old"), str(tmp_path / "new"))
    for descriptor in descriptors:
        with pytest.raises(OSError):
            os.fstat(descriptor)


def test_handles_of_removed_or_replaced_files_are_invalid(files: OpenFiles, tmp_path: Path) -> None:
    removed, in_tree, replaced = (opened(files, tmp_path / name) for name in ("a", "tree/b", "c"))
    (tmp_path / "new").write_bytes(b"new")
    files.remove(str(tmp_path / "a"))
    files.remove_tree(str(tmp_path / "tree"))
    files.rename(str(tmp_path / "new"), str(tmp_path / "c"))
    for handle in (removed, in_tree, replaced):
        with pytest.raises(OSError) as raised:
            files.read_at(handle, 1, 0)
        assert raised.value.errno == errno.ESTALE
        files.close_file(handle)
    assert (tmp_path / "c").read_bytes() == b"new"


def test_a_reserved_port_can_be_listened_on() -> None:
    with socket.socket() as reserving, socket.socket() as listening, socket.socket() as other:
        operating_system.reuse_address(reserving, shared=True)
        reserving.bind(("127.0.0.1", 0))
        operating_system.reuse_address(listening, shared=True)
        listening.bind(reserving.getsockname())
        listening.listen()
        socket.create_connection(reserving.getsockname()).close()
        operating_system.reuse_address(other)
        with pytest.raises(OSError):
            other.bind(reserving.getsockname())
            other.listen()


def test_a_secret_file_exists_only_while_it_is_needed() -> None:
    with operating_system.make_secret_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
    assert not os.path.exists(path)


def test_an_event_loop_is_available_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = operating_system.make_event_loop()
    loop.close()
    assert isinstance(loop, asyncio.SelectorEventLoop)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals for a process")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("is_bare", [False, True])
def test_a_signal_interrupts_the_wait_for_events(name: str, is_bare: bool) -> None:
    ran = run(ENDED.format(name=name), is_bare=is_bare)
    assert ran.startswith("ended")
    assert not is_bare or ran == "ended asyncio.unix_events\n"


@pytest.mark.skipif(sys.platform != "linux", reason="tests/bare takes away what Linux has")
def test_a_broker_serves_without_features_that_windows_lacks() -> None:
    assert run(SERVED, is_bare=True) == "100 False False\n"


@pytest.mark.skipif(sys.platform != "linux", reason="tests/bare takes away what Linux has")
def test_a_pytest_option_removes_features_that_windows_lacks(tmp_path: Path) -> None:
    file = tmp_path / "test_bare.py"
    file.write_text("import sys\ndef test_fcntl_is_gone():\n    assert sys.modules['fcntl'] is None\n")
    options = ["-p", "conftest", "--bare", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    command = [sys.executable, "-m", "pytest", *options, f"--basetemp={tmp_path / 'base'}", str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def run(script: str, *, is_bare: bool) -> str:
    """Run a script in another process, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*([str(BARE)] if is_bare else []), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=60
    ).stdout


def _write_files(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return f"{root}/"


def test_the_quota_of_any_control_group_above_limits_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    groups = {"proc/self/cgroup": "0::/pods/one\n"}
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "a", groups)) == 8
    own = groups | {"sys/fs/cgroup/pods/one/cpu.max": "150000 100000\n", "sys/fs/cgroup/pods/cpu.max": "max 100000\n"}
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "b", own)) == 1.5
    above = groups | {"sys/fs/cgroup/pods/cpu.max": "50000 100000\n"}
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "c", above)) == 0.5
    container = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "100000 100000\n"}
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "d", container)) == 1


def test_the_quota_of_an_older_container_limits_the_cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    folder = "sys/fs/cgroup/cpu"
    files = {f"{folder}/cpu.cfs_quota_us": "100000\n", f"{folder}/cpu.cfs_period_us": "100000\n"}
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "a", files)) == 1
    files[f"{folder}/cpu.cfs_quota_us"] = "-1\n"
    assert operating_system.count_usable_cpus(_write_files(tmp_path / "b", files)) == 2


def test_the_cpu_time_of_threads_is_omitted_if_the_system_does_not_provide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> int:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(operating_system.time, "pthread_getcpuclockid", refuse)
    assert operating_system.find_thread_clock() is None
