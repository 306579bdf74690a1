"""Random histories of a log on a disk that fails, replayed by their seed: what was promised must be there.

    python -m tests.storage.simulation --histories 5000 --seed 1

Disk, time, the other thread and chance are all replaced, so a history is the same each time it is run. Its steps are
appends, turns in which several batches are written together, rolls, flushes that end when they like, deletions,
truncations, checkpoints, failures of all kinds, stops, kills at any operation on the disk, and power cuts. After each
start the log is compared with what it may, and what it must, hold (`promises.py`).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.progress import track

from tests.storage.random_history import Simulation


class Broken(AssertionError):
    """A history in which a promise was not kept; the message tells how to have it again."""


def run_history(seed: int) -> Counter[str]:
    """Run the history of this seed; how often each thing has happened in it. Raises `Broken`."""
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception as error:
        steps = "\n".join(simulation.steps)
        again = f"python -m tests.storage.simulation --histories 1 --seed {seed}"
        raise Broken(f"{steps}\nseed {seed}: {type(error).__name__}: {error}\nagain: {again}") from error
    return simulation.counts + simulation.disk.happened


def run_histories(seeds: Iterable[int]) -> tuple[Counter[str], list[Broken]]:
    """Run these histories; how often each thing has happened, and which promises were broken."""
    counts: Counter[str] = Counter()
    broken: list[Broken] = []
    for seed in seeds:
        try:
            counts += run_history(seed)
        except Broken as error:
            broken.append(error)
    return counts, broken


def main() -> int:
    """Run random histories of a log on a disk that fails; the exit status is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.storage.simulation", description=main.__doc__)
    parser.add_argument("--histories", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="that of the first; each has the next one (default: 0)")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    counts, broken = run_histories(
        track(range(options.seed, options.seed + options.histories), "histories", console=Console(stderr=True))
    )
    for thing, times in sorted(counts.items()):
        print(f"{times:10d}  {thing}")
    for error in broken[:-1]:
        print(str(error).splitlines()[-2])
    if broken:
        print(broken[-1])
        if options.histories == 1:
            raise broken[-1]
    print(f"{options.histories} histories from seed {options.seed} on: {len(broken)} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
