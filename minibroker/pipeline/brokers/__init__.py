"""A running Kafka broker as the pipeline sees it: a client, and the log that the broker serves."""
