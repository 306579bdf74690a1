"""Kafka's own message definitions: JSON files inside the jars of Maven Central, fetched once and never committed.

What a definition means in bytes is in `interpreter.py`.
"""

from __future__ import annotations

import fcntl
import functools
import json
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from conformance.maven import run_maven

HERE = Path(__file__).parent
RELEASES = ("4.4.0", "3.9.1")  # the newest first: it is asked first

Spec = dict[str, Any]


class Definition(NamedTuple):
    """One message of one release."""

    release: str
    spec: Spec
    versions: range
    flexible: range


@functools.cache
def jars() -> Path:
    """The folder with the jars. Raises RuntimeError with Maven's output if they cannot be had."""
    target = HERE / "target"
    target.mkdir(exist_ok=True)
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = target / "jars" / "done"
        if not done.exists() or done.stat().st_mtime < (HERE / "pom.xml").stat().st_mtime:
            run_maven(HERE, ["dependency:copy"])
            done.touch()
    return target / "jars"


@functools.cache
def definitions(release: str) -> dict[str, Definition]:
    """Every message that a release still has in any version, by name."""
    found = {}
    for jar in sorted(jars().glob(f"*-{release}.jar")):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"common/(message|metadata)/\w+\.json", name):
                    spec = json.loads(re.sub(r"(?m)^\s*//.*$", "", archive.read(name).decode()))
                    found[spec["name"]] = Definition(
                        release, spec, versions(spec["validVersions"]), versions(spec.get("flexibleVersions"))
                    )
    return {name: definition for name, definition in found.items() if definition.versions}


def definition_of(name: str, version: int) -> Definition | None:
    """The definition in the newest release that has this version of a message."""
    for release in RELEASES:
        found = definitions(release).get(name)
        if found is not None and version in found.versions:
            return found
    return None


def versions(text: str | None) -> range:
    """Kafka's notation for versions: "3", "0-12", "9+" or "none"."""
    if text in (None, "none"):
        return range(0)
    match = re.fullmatch(r"(\d+)(\+|-(\d+))?", text or "")
    if match is None:
        raise ValueError(f"{text!r} is not a range of versions")
    first, rest, last = match.groups()
    return range(int(first), 32768 if rest == "+" else int(last or first) + 1)
