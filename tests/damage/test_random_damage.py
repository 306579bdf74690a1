"""Random damage to the files of a data directory: what a start makes of it; many more seeds by `simulation`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.damage.filling import Ground, grounds
from tests.damage.simulation import outcome

SEEDS = range(1, 21)
MORE_SEEDS = range(21, 61)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Ground]]:
    """Directories as stops and kills have left them, made once."""
    yield grounds(tmp_path_factory.mktemp("damage"))


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.thorough)])
def test_random_damage_is_rejected_or_reported(left: list[Ground], tmp_path: Path, seeds: range) -> None:
    outcomes = [outcome(left[seed % len(left)], tmp_path / "damaged", seed) for seed in seeds]
    assert {"refused", "the same", "said"} <= set(outcomes)  # or nothing was damaged that matters
