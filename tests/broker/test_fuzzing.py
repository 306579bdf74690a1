"""Spoilt requests beside clients that work. A million are sent by hand: `python -m tests.broker.fuzzing`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.broker.fuzzing import fuzz

FRAMES = 3_000


def test_malformed_requests_cause_no_traceback_and_affect_no_other_client(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    outcome = fuzz(tmp_path, FRAMES, seed)
    assert outcome.findings == [], "\n\n".join(map(str, outcome.findings))
    assert outcome.answers > FRAMES / 10
    assert all(each.done > 0 for each in outcome.neighbours)
