"""Share consumers of librdkafka as a program; and the rules of such programs, which other languages have, too.

    python3 -m conformance.programs.sharing

A program keeps any number of share consumers of partition 0 of a topic each. It reads commands on stdin, a line of JSON
each, and answers each with a line. `do` is one of these, `name` the consumer's:

- `open`: subscribe in `group` to `topic` at `bootstrap`; with `explicit`, every record is acknowledged by `say`, else
  the next poll does; `strict`, if its library can, gets at most 10 records at a time, and none before it polls
  (KIP-1206)
- `poll`: wait for records for at most `seconds`; answers `{"records": [[offset, value, delivery count], ...]}`
- `say`: acknowledge records of the last poll; `types` has by offset ACCEPT, RELEASE, REJECT or RENEW
- `commit`: send what was said, and wait for the broker; answers `{"error": null}`, or the name of Kafka's error code
- `close`: leave the group; what was not acknowledged is released

A command that fails is answered with `{"failure": ...}` and what the library says.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Thread
from typing import Any

import confluent_kafka

Command = dict[str, Any]
TYPES = {
    "ACCEPT": confluent_kafka.AcknowledgeType.ACCEPT,
    "RELEASE": confluent_kafka.AcknowledgeType.RELEASE,
    "REJECT": confluent_kafka.AcknowledgeType.REJECT,
}
PATIENCE_S = 30.0
CLOSING_S = 10.0


class Sharer:
    """A share consumer of confluent-kafka: librdkafka."""

    def __init__(self, asked: Command) -> None:
        self._topic = asked["topic"]
        self._consumer = confluent_kafka.ShareConsumer(
            {
                "bootstrap.servers": asked["bootstrap"],
                "group.id": asked["group"],
                "share.acknowledgement.mode": "explicit" if asked["explicit"] else "implicit",
                "log_level": 3,
            }
        )
        self._consumer.subscribe([self._topic])

    def poll(self, asked: Command) -> Command:
        messages = list(self._consumer.poll(asked["seconds"]))
        for message in messages:
            if message.error():
                raise confluent_kafka.KafkaException(message.error())
        return {
            "records": [[each.offset(), (each.value() or b"").decode(), each.delivery_count()] for each in messages]
        }

    def say(self, asked: Command) -> Command:
        for offset, kind in asked["types"].items():
            self._consumer.acknowledge_offset(self._topic, 0, int(offset), TYPES[kind])
        return {}

    def commit(self, _: Command) -> Command:
        outcomes = self._consumer.commit_sync(PATIENCE_S)
        errors = [each.args[0].name() for each in outcomes.values() if each is not None]
        return {"error": errors[0] if errors else None}

    def close(self, _: Command) -> Command:
        """Close it in another thread: librdkafka 2.16 may wait in it for ever, after the broker has answered all."""
        closing = Thread(target=self._consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSING_S)
        return {}


def main() -> None:
    consumers: dict[str, Sharer] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if asked["do"] == "open":
                consumers[asked["name"]] = Sharer(asked)
                answer: Command = {}
            else:
                answer = getattr(consumers[asked["name"]], asked["do"])(asked)
        except Exception as error:  # whatever the library raises is its answer
            answer = {"failure": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # some may still be closing


if __name__ == "__main__":
    main()
