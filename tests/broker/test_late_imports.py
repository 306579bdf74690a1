"""What is imported once clients can connect: everything that requests would wait for, and little at a time."""

from __future__ import annotations

import ast
import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import minibroker
from minibroker.broker import late_imports

# What is imported when a listener, a file or an option asks for it, before clients can connect, or in a tool.
AT_A_START = {
    "minibroker.broker.configs.properties",
    "minibroker.broker.monitoring.measured_disk",
    "minibroker.broker.monitoring.metrics",
    "minibroker.broker.monitoring.metrics_server",
    "minibroker.broker.monitoring.request_statistics",
    "minibroker.broker.network.authenticator",
    "minibroker.broker.network.inherited_sockets",
    "minibroker.broker.network.tls_layer",
    "minibroker.broker.requests.interceptors",
    "minibroker.broker.security.mechanisms",
    "minibroker.broker.security.tls",
    "minibroker.protocol.records.crc_by_table",  # where there is no crc32c: in a browser
    "minibroker.protocol.records.walking",
    "minibroker.quantities",  # says why it does not start
    "minibroker.suggestions",
    "crc32c",  # whose extension is loaded without it
    "json",  # reads files at a start, or in a tool
    "jwt",
    "jwt.exceptions",
    "urllib.error",
    "urllib.request",
}

SCRIPT = """
import asyncio, sys
import minibroker.broker.process, minibroker.broker.configuration
from minibroker.operating_system import make_event_loop
make_event_loop().close()
from minibroker.broker.late_imports import LATE, import_late_modules
sizes = [len(sys.modules)]
before = set(sys.modules)
async def sleep(seconds):
    sizes.append(len(sys.modules))
asyncio.run(import_late_modules(sleep))
sizes.append(len(sys.modules))
print(max(after - before for before, after in zip(sizes, sizes[1:])), len(set(LATE) & before))
late = set(sys.modules)
import minibroker.broker.groups.group_coordinator, minibroker.broker.groups.consumer.heartbeat
import minibroker.broker.groups.group_expiry, minibroker.broker.groups.consumer.consumer_descriptions
import minibroker.broker.transactions.transaction_coordinator, minibroker.broker.transactions.verification
import minibroker.broker.upkeep.cleaner
print(len(set(sys.modules) - late))
print(*[name for name in sys.modules if name in ("cryptography", "minibroker.broker.network.tls_layer")])
"""
NAMES = SCRIPT.partition("print")[0] + "print(*sys.modules)"


def test_all_late_imports_are_done_a_few_modules_at_a_time() -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    at_once, there_already, left, *only_with_tls = ran.stdout.split()
    assert only_with_tls == []
    at_once, there_already, left = map(int, (at_once, there_already, left))
    assert at_once <= 6
    assert there_already == 0
    assert left == 0


def test_every_module_that_a_function_imports_is_imported_before_it_runs() -> None:
    ran = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, text=True, check=True)
    folder = Path(minibroker.__file__).parent
    files = [file for part in ("broker", "storage", "protocol") for file in (folder / part).rglob("*.py")]
    inside = {name for file in files for name in imports_in_functions(file)}
    assert len(inside) > 30
    assert inside - set(ran.stdout.split()) == AT_A_START - set(ran.stdout.split())


def imports_in_functions(file: Path) -> Iterator[str]:
    """Yield the names of the modules that functions of a file import."""
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.ImportFrom):
                    yield node.module or ""
                elif isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(("free", "pauses"), [(513, 2), (512, 0)])
def test_imports_do_not_pause_when_few_file_descriptors_are_left(
    monkeypatch: pytest.MonkeyPatch, free: int, pauses: int
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(late_imports, "LATE", ("json", "uuid"))
    asyncio.run(late_imports.import_late_modules(sleep, lambda: free))
    assert len(slept) == pauses


def test_a_module_whose_import_lacks_a_file_descriptor_is_imported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    slept: list[float] = []

    def import_once_there_is_room(name: str) -> None:
        asked.append(name)
        if len(asked) < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(late_imports, "import_module", import_once_there_is_room)
    monkeypatch.setattr(late_imports, "LATE", ("json",))
    asyncio.run(late_imports.import_late_modules(sleep, lambda: 0))
    assert asked == ["json"] * 3
    assert slept == [late_imports.RETRY_SECONDS] * 2


def test_a_late_import_of_a_missing_module_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_imports, "LATE", ("nothing_of_this_name",))
    with pytest.raises(ImportError):
        asyncio.run(late_imports.import_late_modules(count_free=lambda: 0))
