"""Kafka's own tools for topics, configs, groups and records, with their options and output, as scripts call them.

`python3 -m minibroker.cli.kafka_tools kafka-topics --list` is what `kafka-topics` of the container image runs. They do
what the commands of minibroker do, by the same functions; options that they do not have are errors.
"""
