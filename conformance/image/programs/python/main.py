"""Starts the image by testcontainers-python, prints where clients connect, and stops it when stdin ends."""

import contextlib
import sys

from testcontainers.community.kafka import KafkaContainer

with contextlib.ExitStack() as running:
    for kind in sys.argv[1:]:
        kraft = kind == "kraft"
        container = KafkaContainer("minibroker:8.0.0").with_kraft() if kraft else KafkaContainer("minibroker:8.0.0")
        kafka = running.enter_context(container)
        print(kafka.get_bootstrap_server(), flush=True)
    sys.stdin.read()
