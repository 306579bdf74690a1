"""Kafka's messages, one file for each subject. Each message is declared once for all versions."""
