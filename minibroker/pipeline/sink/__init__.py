"""Writes rows to a running broker: from columns to batches, requests, and transactions that Spark's commit ends.

Nothing is imported here. `pipeline/encode` makes batches, `pipeline/brokers` connections.
"""
