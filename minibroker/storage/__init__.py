"""The log on disk, in Apache Kafka's own files. Its interface is offsets, batches and time, never requests."""
