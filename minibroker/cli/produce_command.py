"""`minibroker produce`: writes a record per line to any Kafka, with confluent-kafka.

This file parses lines; the client library handles batches, retries and codecs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

from minibroker.cli.connecting import Bootstrap, client_options, librdkafka_config
from minibroker.cli.shared import assignments_option, failure, json_option, reason

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

# The largest request that brokers accept by default; no longer line could be a record.
LINE_MAX_BYTES = 104_857_600
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUEUE_FULL_WAIT_S = 1.0


class LineFormat(NamedTuple):
    """The format of a line: the separator of key and value, and the texts that stand for null."""

    key_separator: bytes | None
    null_key: bytes | None
    null_value: bytes | None


class Written(NamedTuple):
    """The records of one partition that the broker acknowledged; offsets are None with acks 0."""

    partition: int
    records: int
    first_offset: int | None
    last_offset: int | None


@click.command()
@click.argument("topic")
@click.option("--file", "source", type=click.File("rb"), default="-", help="Lines to read.  [default: stdin]")
@click.option("--key-separator", metavar="TEXT", help="The separator of key and value, such as : in key:value.")
@click.option("--null-key", metavar="TEXT", help="The text that stands for a null key.")
@click.option("--null-value", metavar="TEXT", help="The text that stands for a null value, a tombstone.")
@assignments_option("--header", "headers", "A header for every record.")
@click.option("--partition", type=click.IntRange(0), help="[default: by the key's hash, or any]")
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(0.001, 2_000_000), default=30.0, show_default=True,
              help="Give up on a record that is not acknowledged after this many seconds.")  # fmt: skip
@client_options
@json_option("Print the report as a JSON object.")
def produce(
    topic: str,
    source: BinaryIO,
    key_separator: str | None,
    null_key: str | None,
    null_value: str | None,
    headers: tuple[tuple[str, str], ...],
    partition: int | None,
    compression: str,
    acks: str,
    timeout_s: float,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Write a record for each line, and report the partitions and offsets.

    \b
    Example:
        printf 'a:1\\nb:2\\n' | minibroker produce orders --key-separator :
    """
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if null_key is not None and key_separator is None:
        raise click.UsageError("--null-key needs --key-separator, as otherwise there are no keys")
    settings = {"compression.type": compression, "acks": acks, "message.timeout.ms": int(timeout_s * 1000)}
    producer = _producer({**settings, **librdkafka_config(bootstrap)})
    form = LineFormat(_bytes(key_separator), _bytes(null_key), _bytes(null_value))
    report = Report(topic)
    target: dict[str, Any] = {"topic": topic, "headers": [(name, _bytes(value)) for name, value in headers]}
    if partition is not None:
        target["partition"] = partition
    for number, line in lines_of(source):
        key, value = record_of(line, form)
        _send(producer, {**target, "key": key, "value": value, "on_delivery": report.delivered}, f"line {number}")
    producer.flush()
    report.show(as_json)


def _bytes(text: str | None) -> bytes | None:
    """Return the original bytes of an argument."""
    return None if text is None else os.fsencode(text)


def lines_of(source: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield lines without line endings, with their numbers from 1; the last may have no line ending.

    Raises click.ClickException for a line that is too long to be a record.
    """
    number = 0
    while line := source.readline(LINE_MAX_BYTES + 2):
        number += 1
        line = line.removesuffix(b"\n")
        if len(line) > LINE_MAX_BYTES:
            raise failure(f"line {number} is longer than {LINE_MAX_BYTES} bytes")
        yield number, line


def record_of(line: bytes, form: LineFormat) -> tuple[bytes | None, bytes | None]:
    """Return the key and the value of a line; without a separator, the whole line is the value."""
    key: bytes | None = None
    value: bytes | None = line
    if form.key_separator is not None and form.key_separator in line:
        key, _, value = line.partition(form.key_separator)
        key = None if key == form.null_key else key
    return key, None if value == form.null_value else value


def _producer(config: dict[str, Any]) -> Producer:
    from confluent_kafka import KafkaException, Producer

    try:
        return Producer(config)
    except KafkaException as error:
        raise click.UsageError(reason(error)) from None


def _send(producer: Producer, record: dict[str, Any], where: str) -> None:
    """Queue a record, waiting while the queue is full. Raises click.ClickException for one that cannot be sent."""
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.produce(**record)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(QUEUE_FULL_WAIT_S)
        except KafkaException as error:
            producer.flush()
            raise failure(f"{where}: {reason(error)}") from None


class Report:
    """Counts acknowledged and failed records, as the client library reports them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.written: dict[int, Written] = {}
        self.failed = 0
        self.first_failure = ""

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Handle the library's report for a record."""
        if error is not None:
            self.failed += 1
            self.first_failure = self.first_failure or reason(error)
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        known = offset if offset is not None and offset >= 0 else None
        before = self.written.get(partition, Written(partition, 0, known, known))
        self.written[partition] = before._replace(records=before.records + 1, last_offset=known)

    def show(self, as_json: bool) -> None:
        """Print the report. Raises click.ClickException if a record was not written."""
        rows = [row for _, row in sorted(self.written.items())]
        records = sum(row.records for row in rows)
        if as_json:
            partitions = [row._asdict() for row in rows]
            click.echo(json.dumps({"topic": self.topic, "records": records, "partitions": partitions}))
        else:
            click.echo(f"{_count(records)} written to {self.topic}{''.join(map(_place, rows))}")
        if self.failed:
            raise failure(f"{_count(self.failed)} not written: {self.first_failure}")


def _count(records: int) -> str:
    return f"{records} record{'' if records == 1 else 's'}"


def _place(row: Written) -> str:
    if row.first_offset is None:
        return f", partition {row.partition}"
    if row.first_offset == row.last_offset:
        return f", partition {row.partition} offset {row.first_offset}"
    return f", partition {row.partition} offsets {row.first_offset} to {row.last_offset}"
