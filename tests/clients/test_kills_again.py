"""The loop of `test_kills.py` with another seed, beside it: both together kill the broker fifty times."""

from tests.clients.test_kills import test_kills_lose_reorder_and_repeat_nothing

__all__ = ["test_kills_lose_reorder_and_repeat_nothing"]
