"""Rewrites a log directory in message format 2, with another codec or batch size: the job `rewrite` without Spark."""
