"""Older releases of Apache Kafka: their APIs and versions (`releases`), and their answers (`emulation`)."""
