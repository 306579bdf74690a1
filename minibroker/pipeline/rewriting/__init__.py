"""A log directory in another message format, codec or batch size: the parts of the job `rewrite`, without Spark."""
