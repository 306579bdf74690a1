"""Makes `tests/broker/data/kafka-4.4.zip`, a small data directory that Apache Kafka 4.4 wrote, and what is in it.

Run as `python3 -m conformance.kafka_files.golden`, or with `KAFKA_VERSION=4.3.1` for that of 4.3; it takes two minutes,
in which Kafka cleans its metadata log. The tests that use the files are in `tests/broker/test_kafka_directory.py`.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from conformance.builds import APACHE_KAFKA
from conformance.kafka_files.conftest import KAFKA_PROPERTIES, METADATA, START_OFFSETS
from conformance.kafka_files.contents import Topic, client, contents
from conformance.kafka_files.scenario import admin_of, done, shorten, transactions, wait_until, write_security
from conformance.kafka_reference import running_kafka
from conformance.spec import CODECS
from tests.broker.test_kafka_directory import digest

TARGET = Path(__file__).parents[2] / "tests" / "broker" / "data"
NAME = f"kafka-{APACHE_KAFKA.rpartition('.')[0]}"
NODE_ID = "1"  # that of the tests' broker
PROPERTIES = {
    **KAFKA_PROPERTIES,
    "node.id": NODE_ID,
    "metadata.max.retention.bytes": "10000",
}
FIRST_TIMESTAMP_MS = 1_700_000_000_000


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory) / "logs"
        with running_kafka(Path(directory), PROPERTIES) as kafka:
            _write(kafka.bootstrap_servers)
            wait_until(lambda: "shortened 0 255" in (logs / START_OFFSETS).read_text(), "the start of a shortened log")
            first = logs / METADATA / "00000000000000000000.log"
            wait_until(lambda: not first.exists(), "the end of the metadata log's first segment", patience_s=180)
            contents(kafka.bootstrap_servers)  # which brings the topic of the groups
            found = contents(kafka.bootstrap_servers)
            kafka.stop()
        with zipfile.ZipFile(TARGET / f"{NAME}.zip", "w", zipfile.ZIP_LZMA) as archive:
            for path in sorted(logs.rglob("*")):
                if not path.name.endswith(".checkpoint.deleted"):  # there are dozens
                    archive.write(path, Path("data") / path.relative_to(logs))
    described = {name: _described(topic) for name, topic in found.items()}
    (TARGET / f"{NAME}.json").write_text(json.dumps(described, indent=1) + "\n")


def _write(bootstrap_servers: str) -> None:
    admin = admin_of(bootstrap_servers)
    done(admin.create_topics([NewTopic("plain", 2, 1), NewTopic("gone", 1, 1)]))
    for codec in CODECS:
        producer = Producer(client(bootstrap_servers, **{"compression.type": codec, "enable.idempotence": True}))
        for number in range(6):
            headers = [("h", codec.encode()), ("null", None)] if number == 5 else []
            timestamp = FIRST_TIMESTAMP_MS + number
            producer.produce("plain", b"v" * 20 * number, codec, number % 2, timestamp=timestamp, headers=headers)
        assert producer.flush() == 0
    transactions(bootstrap_servers)
    shorten(bootstrap_servers)
    write_security(bootstrap_servers)
    done(admin.delete_topics(["gone"]))
    for number in range(600):
        change = ConfigEntry("max.message.bytes", f"{1_000_000 + number}", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "plain", incremental_configs=[change])
        done(admin.incremental_alter_configs([resource]))


def _described(topic: Topic) -> dict[str, object]:
    partitions = [
        {
            "start_offset": partition.start_offset,
            "end_offset": partition.end_offset,
            "records": len(partition.records),
            "digest": digest((*record[:2], record.timestamp[1], *record[3:]) for record in partition.records),
        }
        for partition in topic.partitions
    ]
    return {"topic_id": topic.topic_id, "configs": topic.configs, "partitions": partitions}


if __name__ == "__main__":
    main()
