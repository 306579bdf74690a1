"""The loop of `test_kills.py` with another seed, beside it: both together kill the broker fifty times."""

from tests.clients.test_kills import test_kills_cause_no_loss_reordering_or_duplicates

__all__ = ["test_kills_cause_no_loss_reordering_or_duplicates"]
