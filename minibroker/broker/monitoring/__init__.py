"""Counters of the broker, metrics, and limits on log lines."""
