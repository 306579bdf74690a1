"""Archives of the classes that a Java program loads: with its own, a JVM starts with half of the CPU.

A JVM writes one when its program ends in order (`-XX:ArchiveClassesAtExit`); which program that is, and what it does
until then, is the caller's. A JVM leaves alone an archive that does not fit: of other jars, or another Java.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

QUIET = ["-Xlog:disable", "-Xlog:all=error"]  # or the JVM tells of each class that it cannot archive


def archive_options(built: Path, archive: Path, run: Callable[[list[str]], object]) -> list[str]:
    """Return the options for the archive of what was built, which is made if there is none that is newer.

    `run` runs the program to its end, with the options that it is given.
    """
    made = archive.with_suffix(".new")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with locked(archive.with_suffix(".lock")):
        if not archive.exists() or archive.stat().st_mtime < built.stat().st_mtime:
            made.unlink(missing_ok=True)
            run([f"-XX:ArchiveClassesAtExit={made}", *QUIET])
            made.replace(archive)
    return [f"-XX:SharedArchiveFile={archive}", *QUIET]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes from what they do while they hold the lock on the same file, which is made."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
