"""Suggestions for misspelt names: the one place that asks "did you mean"."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

CUTOFF: Final = 0.7  # of difflib's similarity: `lst` for `list`, but not `set`
NAMES_MAX: Final = 20_000  # a name takes about 2 us, and a cluster can have 100,000 topics


def format_suggestion_of_similar_name(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean orders?`, or nothing if no known name is similar. Capitals do not matter."""
    from difflib import get_close_matches  # here: most names are right

    by_lower = {each.lower(): each for each in islice(known, NAMES_MAX)}
    matches = get_close_matches(name.lower(), by_lower, 1, CUTOFF)
    return f"; did you mean {by_lower[matches[0]]}?" if matches else ""
