"""Prints old_messages.json: what Kafka's Java producers of 2015 to 2018 send. Not part of a test run.

    python -m tests.protocol.records.golden.old_messages JARS > old_messages.json

JARS has a folder a version of kafka-clients, named after it, with that jar and those it depends on, of Maven Central.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.protocol.records.golden import librdkafka_batches
from tests.protocol.records.golden.librdkafka_batches import OneTopicBroker

VERSIONS = ("0.8.2.2", "0.9.0.1", "0.10.0.1", "0.10.2.2", "0.11.0.3")
CODECS = ("none", "gzip", "snappy", "lz4")
PROGRAM = Path(__file__).with_name("OldProducer.java")


def main() -> None:
    # Newer ones ask what the broker knows, and send format 1 to one of that time.
    librdkafka_batches.VERSIONS = ((0, 0, 2), (1, 0, 3), (3, 0, 2), (18, 0, 0))
    broker = OneTopicBroker()
    found = {}
    for version in VERSIONS:
        for codec in CODECS:
            for kind in ("small", "large"):
                if codec == "none" and kind == "large":
                    continue
                jars = Path(sys.argv[1]) / version / "*"
                address = f"127.0.0.1:{broker.port}"
                subprocess.run(["java", "-cp", str(jars), str(PROGRAM), address, codec, kind], check=True, stderr=2)
                (found[f"{version} {kind} {codec}"],) = broker.batches
                broker.batches.clear()
    print(json.dumps({name: batch.hex() for name, batch in found.items()}, indent=2))


if __name__ == "__main__":
    main()
