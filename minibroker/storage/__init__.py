"""The log on disk, in Apache Kafka's own files. Speaks offsets, batches and time, never requests."""
