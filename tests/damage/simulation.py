"""Random damage to every kind of file, replayed by its seed: a start refuses it, or says what is not as it was.

    python -m tests.damage.simulation --seeds 5000 --first 1

Each seed takes a directory that a stop or a kill has left, damages one file, starts a broker on it, and compares all
that is served with what was served without the damage.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.protocol.errors import KafkaError
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.damage.corrupting import damage
from tests.damage.filling import Ground, grounds, opened
from tests.damage.reading import Seen, differences, seen_by


class Unsaid(AssertionError):
    """Something is served that is not what was written, and nobody was told."""


class Lines(logging.Handler):
    """The broker's log, kept."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if record.exc_info:
            raise AssertionError(f"a traceback in the log: {record.getMessage()}") from record.exc_info[1]


@contextmanager
def kept_lines() -> Iterator[Lines]:
    """Keep what the broker logs inside the block."""
    handler, logger = Lines(), logging.getLogger("minibroker")
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def outcome(ground: Ground, folder: Path, seed: int) -> str:
    """Return the outcome of one damage: "refused", "the same", "said", or "uncovered" for what nobody can know.

    Raises `Unsaid`, and AssertionError where the broker failed.
    """
    random = Random(seed)
    shutil.copytree(ground.directory, folder)
    try:
        done = damage(folder, random)
        with kept_lines() as log:
            try:
                harness = opened(folder)
            except (LogDirectoryError, MetadataError, KafkaError) as error:  # what a start tells in one line
                return _refusal(str(error), done.text)
            except Exception as error:
                raise AssertionError(f"seed {seed}, {ground.name}: {done.text}: the start failed: {error!r}") from error
            try:
                return _compared(ground.seen, seen_by(harness), log.lines)
            except Unsaid as error:
                if done.uncovered:
                    return "uncovered"
                raise Unsaid(f"seed {seed}, {ground.name}: {done.text}\n{error}\nlogged: {log.lines}") from None
            except Exception as error:
                raise AssertionError(f"seed {seed}, {ground.name}: {done.text}: {error!r}") from error
            finally:
                harness.logs.close_without_checkpoints()
    finally:
        shutil.rmtree(folder)


def _refusal(text: str, done: str) -> str:
    if "\n" in text:
        raise Unsaid(f"a refusal of several lines: {text}")
    if "-v" in sys.argv:
        print("REFUSED", done, "|", text)
    return "refused"


def _compared(before: Seen, after: Seen, lines: list[str]) -> str:
    found = list(differences(before, after))
    unsaid = [
        f"{subject}: {what}" for subject, what in found if not subject or not any(subject in line for line in lines)
    ]
    if unsaid:
        raise Unsaid("\n".join(unsaid[:5]))
    if "-v" in sys.argv and found:
        print("SAID", found[0], len(found), lines)
    return "said" if found else "the same"


def run(seeds: Iterable[int], *, keep_on: bool = False) -> Counter[str]:
    """The outcomes of some seeds; each takes the next of the grounds."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        made = grounds(Path(name))
        for seed in seeds:
            try:
                outcomes[outcome(made[seed % len(made)], Path(name) / "damaged", seed)] += 1
            except AssertionError as error:
                if not keep_on:
                    raise
                outcomes["BROKEN"] += 1
                print(error, "\n")
    return outcomes


def main() -> int:
    """Run as many as told; 1 if one was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("-v", action="store_true")
    told = parser.parse_args()
    begun = time.monotonic()
    outcomes = run(range(told.first, told.first + told.seeds), keep_on=True)
    print(dict(outcomes), f"{time.monotonic() - begun:.1f} s")
    return 1 if outcomes["BROKEN"] else 0


if __name__ == "__main__":
    sys.exit(main())
