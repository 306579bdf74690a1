"""Rewrites a log directory in another message format, codec or batch size: the job `rewrite` without Spark."""
