"""What writes rows to a running broker: from columns to batches, requests, and transactions that Spark's commit ends.

Nothing is imported here. Batches are made in `pipeline/encode`, connections in `pipeline/brokers`.
"""
