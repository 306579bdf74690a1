"""A running Kafka broker as the pipeline sees it: the client that asks it anything, and the log that it serves."""
