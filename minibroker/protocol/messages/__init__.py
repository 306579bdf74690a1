"""Kafka's messages, one file a subject, each message declared once for all of its versions."""
