"""Streams groups: Kafka Streams applications whose tasks the broker assigns (KIP-1071)."""
