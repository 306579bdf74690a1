"""`kafka-console-consumer`: prints records as they come, until `--max-messages`, `--timeout-ms` or Ctrl-C."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import click

from minibroker.cli.administration import connect_client, get_topic_configs
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.consume.consume_command import ConsumeEnding, make_record_source, print_records
from minibroker.cli.consume.consume_sources import ConsumeSelection
from minibroker.cli.kafka_tools.tool_options import (
    check_known_properties,
    is_true_property,
    make_properties_option,
    make_server_options,
)
from minibroker.cli.places import PartitionPlace, parse_offset_or_time, parse_topic
from minibroker.cli.shared import PARTITION

if TYPE_CHECKING:
    from minibroker.client.blocking import Client
    from minibroker.client.record_fetching import FetchedRecord

PARTS: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
PROPERTIES: Final = (*(f"print.{each}" for each in PARTS), "key.separator", "line.separator", "null.literal",
                     "headers.separator")  # fmt: skip
LEVELS: Final = ("read_committed", "read_uncommitted")


def parse_start_offset(text: str) -> PartitionPlace:
    """Parse an offset, `earliest` or `latest`. Raises click.BadParameter."""
    if not text.isdecimal() and text not in ("earliest", "latest"):
        raise click.BadParameter(f"{text!r} is not an offset, earliest or latest")
    return parse_offset_or_time(text)


@click.command("kafka-console-consumer")
@make_server_options("--consumer.config", "--consumer-property")
@click.option("--topic")
@click.option("--include", "--whitelist", "include", help="A regular expression of topics.")
@click.option("--from-beginning", is_flag=True)
@click.option("--offset", type=parse_start_offset, help="With --partition.")
@click.option("--partition", type=PARTITION)
@click.option("--group")
@click.option("--max-messages", type=click.IntRange(1))
@click.option("--timeout-ms", type=click.IntRange(0))
@click.option("--isolation-level", type=click.Choice(LEVELS), default="read_uncommitted")
@make_properties_option("--property", "--formatter-property")
def kafka_console_consumer(
    bootstrap: Bootstrap,
    topic: str | None,
    include: str | None,
    from_beginning: bool,
    offset: PartitionPlace | None,
    partition: int | None,
    group: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Print records. Without a group, none is made and nothing is committed."""
    if (topic is None) == (include is None):
        raise click.UsageError("needs one of --topic, --include")
    if partition is None and offset is not None:
        raise click.UsageError("--offset needs --partition")
    if group is not None and partition is not None:
        raise click.UsageError("--group cannot be used with --partition")
    given = dict(properties)
    check_known_properties(given, PROPERTIES)
    name, indexes = parse_topic(f"^({include})$" if topic is None else topic)
    start = offset or parse_offset_or_time("earliest" if from_beginning else "latest")
    asked = [(name, indexes if partition is None else (partition,))]
    with connect_client(bootstrap) as client:
        lines = _DefaultFormatter(given, cache(lambda topic: _find_timestamp_type(client, topic)))
        try:
            selection = ConsumeSelection(asked, (start,), (), None, True, isolation_level == LEVELS[0])
            source = make_record_source(client, group, selection)
            timeout_s = None if timeout_ms is None else timeout_ms / 1000
            print_records(source, lines, ConsumeEnding(source, follow=True, count=max_messages, timeout_s=timeout_s))
        finally:
            click.echo(f"Processed a total of {lines.printed} messages", err=True)


def _find_timestamp_type(client: Client, topic: str) -> bytes:
    """Return `CreateTime` or `LogAppendTime`, whichever the topic's records have."""
    configs = {each.name: each.value for each in get_topic_configs(client, topic)}
    return str(configs["message.timestamp.type"]).encode()


class _DefaultFormatter:
    """Kafka's default formatter, with its properties; `printed` counts the records."""

    def __init__(self, properties: dict[str, str], kind_of: Callable[[str], bytes]) -> None:
        self.printed = 0
        self._kind_of = kind_of  # which time the timestamps of a topic are
        shown = {part for part in PARTS if is_true_property(properties, f"print.{part}", part == "value")}
        self._parts = [_PARTS[part] for part in PARTS if part in shown]
        self._separator = os.fsencode(properties.get("key.separator", "\t"))
        self._end = os.fsencode(properties.get("line.separator", "\n"))
        self._null = os.fsencode(properties.get("null.literal", "null"))
        self._headers = os.fsencode(properties.get("headers.separator", ","))

    def __call__(self, found: FetchedRecord) -> bytes:
        self.printed += 1
        return self._separator.join(part(self, found) for part in self._parts) + self._end

    def format_timestamp(self, record: FetchedRecord) -> bytes:
        timestamp = record.record.timestamp
        return b"NO_TIMESTAMP" if timestamp < 0 else b"%s:%d" % (self._kind_of(record.partition[0]), timestamp)

    def format_partition(self, record: FetchedRecord) -> bytes:
        return b"Partition:%d" % record.partition[1]

    def format_offset(self, record: FetchedRecord) -> bytes:
        return b"Offset:%d" % record.record.offset

    def format_headers(self, record: FetchedRecord) -> bytes:
        pairs = [b"%s:%s" % (name.encode(), self._format_bytes_or_null(value)) for name, value in record.record.headers]
        return self._headers.join(pairs) or b"NO_HEADERS"

    def format_key(self, record: FetchedRecord) -> bytes:
        return self._format_bytes_or_null(record.record.key)

    def format_value(self, record: FetchedRecord) -> bytes:
        return self._format_bytes_or_null(record.record.value)

    def _format_bytes_or_null(self, data: bytes | None) -> bytes:
        return self._null if data is None else bytes(data)


_PARTS: Final = {part: getattr(_DefaultFormatter, f"format_{part}") for part in PARTS}
