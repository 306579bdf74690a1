"""Programs that are compiled when the benchmarks run: the C clients, and the Go broker to compare with.

What they do is said in their own sources, in `clients/` and `kfake/`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

HERE = Path(__file__).resolve().parent
KFAKE_MODULES = ("github.com/twmb/franz-go@latest", "github.com/twmb/franz-go/pkg/kfake@latest")


class Unavailable(Exception):
    """Something this machine lacks; the message is why rows are left out."""


class Failed(Exception):
    """A client that gave up, or an answer that is not what was asked for."""


@cache
def build_directory() -> Path:
    """Where this run's programs are; whoever ends the run removes it."""
    return Path(mkdtemp(prefix="minibroker-benchmarks-"))


@cache
def exchange() -> Path:
    """The epoll client. Raises Unavailable."""
    return _compile_c("exchange", [])


@cache
def librdkafka() -> Path:
    """The librdkafka client, linked against the library in the wheel of confluent-kafka. Raises Unavailable."""
    package = importlib.util.find_spec("confluent_kafka")
    if package is None or package.origin is None:
        raise Unavailable("confluent-kafka is not installed")
    site_packages = Path(package.origin).parent.parent
    found = sorted(site_packages.glob("confluent_kafka.libs/librdkafka*.so*"))
    if not found:
        raise Unavailable(f"no librdkafka in {site_packages}/confluent_kafka.libs")
    return _compile_c("librdkafka", [str(found[0]), f"-Wl,-rpath,{found[0].parent}"])


@cache
def kfake() -> Path:
    """kfake behind a main function, at its newest version. Raises Unavailable."""
    go = shutil.which("go")
    if go is None:
        raise Unavailable("go is missing")
    folder = build_directory() / "kfake"
    folder.mkdir()
    shutil.copy(HERE / "kfake" / "main.go", folder)
    _build([go, "mod", "init", "kfake"], folder)
    _build([go, "get", *KFAKE_MODULES], folder)
    _build([go, "build", "-o", "kfake", "."], folder)
    return folder / "kfake"


@cache
def compiled() -> Path:
    """The folder of this checkout's package with what mypyc compiles. Raises Unavailable."""
    folder = build_directory() / "compiled"
    _build([str(HERE.parent / ".ci" / "compile"), str(folder)], HERE)
    return folder


def measure(program: Path, words: Sequence[object], request: bytes = b"") -> dict[str, Any]:
    """Run a client and read the line of JSON it prints. Raises Failed with what it complained about."""
    ran = subprocess.run([program, *map(str, words)], input=request, capture_output=True, check=False)
    if ran.returncode:
        raise Failed(f"{program.name}: {ran.stderr.decode(errors='replace').strip()}")
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


def _compile_c(name: str, libraries: list[str]) -> Path:
    gcc = shutil.which("gcc")
    if gcc is None:
        raise Unavailable("gcc is missing")
    program = build_directory() / name
    _build([gcc, "-O2", "-o", str(program), str(HERE / "clients" / f"{name}.c"), *libraries], HERE)
    return program


def _build(words: Sequence[str], folder: Path) -> None:
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Unavailable(f"{' '.join(words[:2])} failed: {ran.stderr.strip() or ran.stdout.strip()}")
