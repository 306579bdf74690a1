"""Being an older release of Apache Kafka: its APIs and versions (`releases`), and how it answered (`emulation`)."""
