"""Maven in one process for all that a test process builds, which `Maven.java` is: it ends with that process."""

from __future__ import annotations

import atexit
import functools
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock

# Half of the CPU time, where a start counts and not the speed.
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
PROGRAM = Path(__file__).with_name("Maven.java")

_one_at_a_time = Lock()


def run_maven(folder: Path, arguments: Sequence[str]) -> None:
    """Run Maven in a folder. Raises RuntimeError with the end of what it printed if it failed."""
    with _one_at_a_time, NamedTemporaryFile("r", suffix=".txt") as printed:
        process = _started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\t".join((printed.name, str(folder), "-q", "-B", *arguments)) + "\n")
        process.stdin.flush()
        if process.stdout.readline() != "0\n":
            raise RuntimeError(f"mvn {' '.join(arguments)} in {folder} failed:\n{printed.read()[-4000:]}")


@functools.cache
def _started() -> subprocess.Popen[str]:
    """Start the process. It also ends when its stdin is closed: when this process is gone, however that was."""
    version = subprocess.run(["mvn", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    home = re.findall(r"Maven home: (.+)", version)[0]
    libraries = f"{home}/conf/logging:{home}/lib/*:{home}/boot/*"
    command = ["java", *QUICK_JAVA, f"-Dmaven.home={home}", "-cp", libraries, str(PROGRAM)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.communicate)
    return process
