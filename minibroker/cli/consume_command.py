"""`minibroker consume`: prints records of any Kafka, one per line, with confluent-kafka and without a group.

This file chooses partitions and offsets, ends the command, and formats records.
"""

from __future__ import annotations

import json
import re
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minibroker.cli.connecting import Bootstrap, client_options, librdkafka_config
from minibroker.cli.shared import REQUEST_TIMEOUT_S, bytes_field, failure, json_option, readable, reason

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

OFFSET = re.compile(r"[0-9]{1,19}")
OFFSET_MAX = (1 << 63) - 1
# How many records to take from the client library at a time, and for how long it may collect them.
BATCH = 500
POLL_S = 0.1
END_WAIT_MS = 10


class Start(NamedTuple):
    """Where to begin: `kind` is "earliest", "latest", "offset" or "timestamp" (ms since 1970)."""

    kind: str
    number: int = 0


def start_of(text: str) -> Start:
    """Parse `--from`. Raises click.BadParameter."""
    if text in ("earliest", "latest"):
        return Start(text)
    if OFFSET.fullmatch(text) and int(text) <= OFFSET_MAX:
        return Start("offset", int(text))
    try:
        # Without a zone, it is this machine's local time.
        return Start("timestamp", int(datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is not earliest, latest, an offset, or a time like 2026-01-31T12:00:00"
        ) from None


@click.command()
@click.argument("topic")
@click.option("--from", "start", metavar="WHERE", type=start_of, default="earliest", show_default=True,
              help="earliest, latest, an offset, or a time like 2026-01-31T12:00:00.")  # fmt: skip
@click.option(
    "--partition", "partitions", type=click.IntRange(0), multiple=True, help="[default: all] Can be repeated."
)
@click.option("--count", type=click.IntRange(1), help="End after this many records.")
@click.option("--follow", is_flag=True, help="Wait for more records instead of ending after the last.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), help="End after this many seconds without a record.")
@click.option("--key-separator", metavar="TEXT", help="Print keys too, with this text between key and value.")
@client_options
@json_option("Print a JSON object for each record.")
def consume(
    topic: str,
    start: Start,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool,
    timeout_s: float | None,
    key_separator: str | None,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Print the records of a topic.

    A line is a record's value, or null; invalid UTF-8 and control characters are escaped, such as \\x1b. With --json,
    texts are "key" and "value", and invalid UTF-8 is "key_base64" and "value_base64".

    \b
    Example:
        minibroker consume orders --from 2026-01-31 --json
    """
    if as_json and key_separator is not None:
        raise click.UsageError("--key-separator cannot be used with --json, which names the key")
    # The end of a partition is found by an empty fetch; only with --follow may a fetch wait for records.
    wait_ms = {} if follow else {"fetch.wait.max.ms": END_WAIT_MS}
    consumer = _consumer({**wait_ms, **librdkafka_config(bootstrap)})
    try:
        assigned = _assignment(consumer, topic, partitions, start)
        consumer.assign(assigned)
        show = _show_json if as_json else lambda message: _show_text(message, key_separator)
        reader = Reader(consumer, follow=follow, count=count, timeout_s=timeout_s)
        reader.run(show, {partition.partition for partition in assigned})
    except KeyboardInterrupt:
        # The way to end --follow.
        pass
    finally:
        consumer.close()


def _consumer(config: dict[str, Any]) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    # The library requires a group id even for assigned partitions; the group is never joined.
    fixed = {"group.id": "minibroker-cli", "enable.auto.commit": False, "enable.partition.eof": True}
    try:
        return Consumer({**fixed, "auto.offset.reset": "error", "check.crcs": True, **config})
    except KafkaException as error:
        raise click.UsageError(reason(error)) from None


def _assignment(consumer: Consumer, topic: str, wanted: tuple[int, ...], start: Start) -> list[TopicPartition]:
    """Return the partitions to read, each with its first offset. Raises click.ClickException."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

    try:
        metadata = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
        if metadata.error is not None:
            raise failure(f"cannot read {topic}: {reason(metadata.error)}")
        missing = [index for index in wanted if index not in metadata.partitions]
        if missing:
            raise failure(f"{topic} has no partition {missing[0]}, only {len(metadata.partitions)}, from 0")
        known = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END, "offset": start.number, "timestamp": start.number}
        chosen = [
            TopicPartition(topic, index, known[start.kind]) for index in sorted(set(wanted) or metadata.partitions)
        ]
        # For a time after the last record, the answer is the end offset.
        return consumer.offsets_for_times(chosen, REQUEST_TIMEOUT_S) if start.kind == "timestamp" else chosen
    except KafkaException as error:
        raise failure(f"cannot read {topic}: {reason(error)}") from None


class Reader:
    """Reads records from an assigned consumer until the command ends."""

    def __init__(self, consumer: Consumer, *, follow: bool, count: int | None, timeout_s: float | None) -> None:
        self.consumer = consumer
        self.follow = follow
        self.left = count
        self.timeout_s = timeout_s
        self.at_end: set[int] = set()

    def run(self, show: Any, partitions: set[int]) -> None:
        """Pass each record to `show`. Raises click.ClickException for an error of the broker."""
        last = time.monotonic()
        while self.left is None or self.left > 0:
            if not self.follow and self.at_end >= partitions:
                return
            messages = self.consumer.consume(min(BATCH, self.left or BATCH), POLL_S)
            records = [message for message in messages if self._is_record(message)]
            for message in records:
                show(message)
            if records:
                sys.stdout.flush()
                last = time.monotonic()
                self.left = None if self.left is None else self.left - len(records)
            elif self.timeout_s is not None and time.monotonic() - last >= self.timeout_s:
                return

    def _is_record(self, message: Message) -> bool:
        """Return whether it is a record, and not the end of a partition."""
        from confluent_kafka import KafkaError

        error, partition = message.error(), message.partition()
        assert partition is not None
        if error is None:
            self.at_end.discard(partition)
            return True
        if error.code() != KafkaError._PARTITION_EOF:
            raise failure(f"cannot read {message.topic()} partition {partition}: {reason(error)}")
        self.at_end.add(partition)
        return False


def _show_text(message: Message, key_separator: str | None) -> None:
    value = _text(message.value())
    print(value if key_separator is None else f"{_text(message.key())}{key_separator}{value}")


def _text(data: bytes | None) -> str:
    return "null" if data is None else readable(data)


def _show_json(message: Message) -> None:
    kind, timestamp = message.timestamp()
    headers: Any = message.headers() or ()
    record = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        **bytes_field("key", message.key()),
        **bytes_field("value", message.value()),
        "headers": [{"name": name, **bytes_field("value", value)} for name, value in headers],
    }
    print(json.dumps(record))
