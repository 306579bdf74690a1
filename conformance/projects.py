"""The projects of `examples/` and `kits/`, each copied and run with its own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from conformance.clients import REPOSITORY
from conformance.maven import QUICK_JAVA
from tests.running import environment_for_broker

EXAMPLES, KITS = REPOSITORY / "examples", REPOSITORY / "kits"
PATIENCE_S = 400  # an empty cache needs everything from the registries
# Half of the CPU time of a JVM that runs once, also of those that Maven starts; and much is installed that never runs.
ONCE = {"JAVA_TOOL_OPTIONS": " ".join(QUICK_JAVA), "PIP_NO_COMPILE": "1"}
MAVEN_TEST = ("mvn", "-q", "-B", "-DforkCount=0", "test")


def copied(name: str, directory: Path) -> Path:
    """Copy an example and the kits, as they lie in the repository, without what was built; where the example is now."""
    built = shutil.ignore_patterns("node_modules", "target", "__pycache__")
    shutil.copytree(KITS, directory / "kits", ignore=built, dirs_exist_ok=True)
    return shutil.copytree(EXAMPLES / name, directory / "examples" / name, ignore=built)


def run(directory: Path, *command: str, **environment: str) -> str:
    """Run a command to its end, with this minibroker; return what it says."""
    done = ended(directory, Path(sys.executable).parent, *command, **environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def install_kit_for_java() -> None:
    """Let Maven know the kit, as the page for Java does."""
    run(KITS / "java", "mvn", "-q", "-B", "-DskipTests", "install")


def ended(directory: Path, scripts: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with the programs of `scripts` before others."""
    path = os.pathsep.join((str(scripts), os.environ["PATH"]))
    own = environment_for_broker({**ONCE, "PATH": path, **environment})
    return subprocess.run(command, cwd=directory, env=own, capture_output=True, text=True, timeout=PATIENCE_S)
