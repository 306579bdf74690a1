"""Kafka's small text files in a log directory, and the leader epochs of a log."""
