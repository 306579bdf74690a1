"""`minibroker produce`: writes records to any Kafka, with our own client.

`produce_input` makes records of lines and files.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, Seconds, add_client_options
from minibroker.cli.produce.produce_input import (
    BadLine,
    CommonFields,
    InputRecord,
    InputRecordPortions,
    LineFormat,
    iterate_lines,
    iterate_record_of_file,
    iterate_records_of_json,
    iterate_records_of_lines,
    iterate_sources,
    iterate_typed_lines,
)
from minibroker.cli.shared import (
    PARTITION,
    NamedCommand,
    describe_missing_partition,
    make_assignments_option,
    make_json_option,
    make_names_completer,
    make_operation_error,
    suggest_file_commands,
)
from minibroker.quantities import format_count, parse_moment_ms

if TYPE_CHECKING:
    from minibroker.client.producer_identity import ProducerIdentity
    from minibroker.client.record_producing import ProduceOutcome, RecordWriter


PROGRESS_S: Final = 1.0
TRANSACTION_ENDS: Final = {
    "committed": "the transaction is committed",
    "aborted": "the transaction is aborted: consumers do not see these records",
    "open": "the end of the transaction was not confirmed",
}
CLEAR_LINE: Final = "\r\x1b[K"
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS: Final = {"0": 0, "1": 1, "all": -1}
LINES, JSON, FILE = INPUTS = ("lines", "json", "file")
GREETINGS: Final = {
    LINES: "Type a record a line",
    JSON: 'Type a record a line, like {"key": "a", "value": "b"}',
    FILE: "Type the record",
}


class WrittenPartition(NamedTuple):
    """The records of one partition that the broker acknowledged; offsets are None with acks 0."""

    partition: int
    records: int
    first_offset: int | None
    last_offset: int | None


class TopicReport:
    """Counts the records of a topic that were written, and those that were not."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.written: dict[int, WrittenPartition] = {}
        self.failed = 0
        self.first_failure = ""
        self.gave_up = False

    def count_outcome(self, outcome: ProduceOutcome) -> None:
        """Count the records of a batch as written, or as failed."""
        partition, records, first, error, gave_up = outcome
        if error is not None:
            self.failed += records
            self.first_failure = self.first_failure or error
            self.gave_up = self.gave_up or gave_up
            return
        last = None if first is None else first + records - 1
        before = self.written.get(partition, WrittenPartition(partition, 0, first, last))
        self.written[partition] = before._replace(records=before.records + records, last_offset=last)

    @property
    def records(self) -> int:
        """The number of records that were written."""
        return sum(row.records for row in self.written.values())

    def list_rows(self) -> list[WrittenPartition]:
        """Return what was written, by partition."""
        return [row for _, row in sorted(self.written.items())]

    def format_line(self) -> str:
        """Return the report for people."""
        places = "".join(map(_format_offset_range, self.list_rows()))
        return f"{format_count(self.records, 'record')} written to {self.topic}{places}"

    def make_document(self) -> dict[str, object]:
        """Return the report for programs."""
        partitions = [row._asdict() for row in self.list_rows()]
        return {"topic": self.topic, "records": self.records, "partitions": partitions}


class ProduceReport:
    """The reports of all topics; `topic` is the one that all records go to, None if they say it themselves."""

    def __init__(self, topic: str | None, *, shows_progress: bool) -> None:
        self._topic = topic
        self._shows_progress = shows_progress
        self.transaction: str | None = None  # how it ended, if there is one
        self._topics: dict[str, TopicReport] = {}
        self._shown_s = time.monotonic()
        self._is_shown = False
        self._began_s = self._shown_s

    def get_topic_report(self, topic: str) -> TopicReport:
        """Return the report of a topic."""
        return self._topics.setdefault(topic, TopicReport(topic))

    @property
    def has_failed(self) -> bool:
        """Whether a record was not written."""
        return any(each.failed for each in self._topics.values())

    @property
    def gave_up(self) -> bool:
        """Whether the time for a record was up, so that more records would have to wait as long."""
        return any(each.gave_up for each in self._topics.values())

    def show_progress(self) -> None:
        """Show how many records are written, each second."""
        now_s = time.monotonic()
        if not self._shows_progress or now_s - self._shown_s < PROGRESS_S:
            return
        self._shown_s, self._is_shown = now_s, True
        records = sum(each.records for each in self._topics.values())
        rate = records / (now_s - self._began_s)
        click.echo(f"{CLEAR_LINE}{format_count(records, 'record')} written, {rate:,.0f} a second", err=True, nl=False)

    def print_report(self, as_json: bool) -> None:
        """Print the report, of each topic if records say their topics."""
        if self._is_shown:
            click.echo(CLEAR_LINE, err=True, nl=False)
        reports = [self.get_topic_report(self._topic)] if self._topic is not None else list(self._topics.values())
        if as_json:
            ended = {} if self.transaction is None else {"transaction": self.transaction}
            documents = [each.make_document() | ended for each in reports]
            click.echo(json.dumps(documents if self._topic is None else documents[0]))
            return
        click.echo("\n".join(each.format_line() for each in reports) or "0 records written")
        if self.transaction is not None:
            click.echo(TRANSACTION_ENDS[self.transaction])

    def raise_if_failed(self) -> None:
        """Raise click.ClickException if a record was not written."""
        failed = sum(each.failed for each in self._topics.values())
        if failed:
            reasons = [each.first_failure for each in self._topics.values() if each.failed]
            stopped = ", so the rest was not read" if self.gave_up else ""
            raise make_operation_error(f"{format_count(failed, 'record')} not written: {reasons[0]}{stopped}")


def _format_offset_range(row: WrittenPartition) -> str:
    if row.first_offset is None:
        return f", partition {row.partition}"
    if row.first_offset == row.last_offset:
        return f", partition {row.partition} offset {row.first_offset}"
    return f", partition {row.partition} offsets {row.first_offset} to {row.last_offset}"


def parse_timestamp(text: str) -> int:
    """Parse `--timestamp` to ms since 1970. Raises click.BadParameter."""
    try:
        return parse_moment_ms(text, time.time_ns() // 1_000_000)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time like 2026-01-31T12:00:00 or '2 hours ago'") from None


@click.command(cls=NamedCommand)
@click.argument("topic", required=False, shell_complete=make_names_completer("topics"))
@click.option("--file", "sources", type=click.File("rb"), multiple=True,
              help="A file to read. Can be repeated.  [default: stdin]")  # fmt: skip
@click.option("--input", "kind", type=click.Choice(INPUTS), default=LINES, show_default=True,
              help="A record is a line, a line of JSON, or all of a file.")  # fmt: skip
@click.option("--key-separator", metavar="TEXT", help="The separator of key and value, such as : in key:value.")
@click.option("--null-key", metavar="TEXT", help="The text that stands for a null key.")
@click.option("--null-value", metavar="TEXT", help="The text that stands for a null value, a tombstone.")
@click.option("--key", "-k", metavar="TEXT", help="The key of records that have none.")
@make_assignments_option("--header", "headers", "A header for every record.")
@click.option("--timestamp", metavar="TIME", type=parse_timestamp,
              help="The timestamp of records that have none, such as 2026-01-31T12:00:00.  [default: now]")  # fmt: skip
@click.option("--partition", type=PARTITION, help="[default: the record's, by the key's hash, or any]")
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--idempotence", is_flag=True, help="Write no record twice, even if a request is repeated.")
@click.option("--transactional-id", metavar="ID",
              help="Write all records, or none, in a transaction of this id; with --idempotence.")  # fmt: skip
@click.option("--timeout", "timeout_s", metavar="SECONDS", type=Seconds(), default=30.0,
              show_default=True, help="Give up on a record that is not acknowledged after this time.")  # fmt: skip
@add_client_options
@make_json_option("Print the report as a JSON object.")
def produce(
    topic: str | None,
    sources: tuple[BinaryIO, ...],
    kind: str,
    key_separator: str | None,
    null_key: str | None,
    null_value: str | None,
    key: str | None,
    headers: tuple[tuple[str, str], ...],
    timestamp: int | None,
    partition: int | None,
    compression: str,
    acks: str,
    idempotence: bool,
    transactional_id: str | None,
    timeout_s: float,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Write a record for each line, and report the partitions and offsets.

    With --input json, a line is an object as consume --json and dump --json print it: value or value_base64, and maybe
    key or key_base64, headers, timestamp, partition, and topic if no TOPIC is given. A value that is not text, such as
    an object, is written as JSON. With --input file, a file is one record.

    Records before a wrong line are written; the report is of all that was written, even if an error or Ctrl-C ends it.

    \b
    Example:
        printf 'a:1\\nb:2\\n' | minibroker produce orders --key-separator :
        minibroker consume orders --json | minibroker produce copies --input json
    """
    _check_arguments(topic, kind, key_separator, null_key, null_value)
    if acks != "all" and (idempotence or transactional_id is not None):
        raise click.UsageError("--idempotence and --transactional-id need --acks all")
    from minibroker.client.producer_identity import ProducerIdentity
    from minibroker.client.record_producing import RecordWriter
    from minibroker.protocol.records.compression import Compression
    from minibroker.protocol.records.record import Header

    common = CommonFields(
        _encode_key_argument(key),
        timestamp,
        tuple(Header(name, _encode_key_argument(value)) for name, value in headers),
    )
    form = LineFormat(
        _encode_key_argument(key_separator), _encode_key_argument(null_key), _encode_key_argument(null_value)
    )
    is_typed = not sources and sys.stdin.isatty()
    report = ProduceReport(topic, shows_progress=sys.stderr.isatty() and not is_typed)
    codec = Compression[compression.upper()]
    options: dict[str, Any] = {"acks": ACKS[acks], "codec": codec, "timeout_ms": int(timeout_s * 1000)}
    with connect_client(bootstrap) as client:
        has_identity = idempotence or transactional_id is not None
        identity = ProducerIdentity(client, transactional_id) if has_identity else None

        def get_writer_of_topic(topic: str) -> RecordWriter:
            on_outcome = report.get_topic_report(topic).count_outcome
            return RecordWriter(client, topic, on_outcome, identity=identity, **options)

        try:
            with _run_in_transaction(identity, report):
                _produce_records(
                    _iterate_input_records(sources, kind, form, common, is_typed),
                    TopicWriters(get_writer_of_topic, topic, partition),
                    report,
                )
        finally:
            report.print_report(as_json)
    report.raise_if_failed()


@contextmanager
def _run_in_transaction(identity: ProducerIdentity | None, report: ProduceReport) -> Iterator[None]:
    """Commit what is written in this block, if it is in a transaction; abort it if something was not written."""
    if identity is None or identity.transactional_id is None:
        yield
        return
    report.transaction = "open"
    commits = False
    try:
        yield
        commits = not report.has_failed
    finally:
        identity.end_transaction(commits=commits)
        report.transaction = "committed" if commits else "aborted"


def _check_arguments(
    topic: str | None, kind: str, key_separator: str | None, null_key: str | None, null_value: str | None
) -> None:
    """Raise click.UsageError for arguments that do not go together, and for a topic that is a path."""
    if topic is not None and "/" in topic:
        raise click.UsageError(f"{topic!r} is no topic; {suggest_file_commands(topic)}")
    if topic is None and kind != JSON:
        raise click.UsageError("TOPIC is missing; only lines of --input json can say it themselves")
    if kind != LINES and (key_separator, null_key, null_value) != (None, None, None):
        raise click.UsageError(f"--key-separator, --null-key and --null-value are for lines, not for --input {kind}")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if null_key is not None and key_separator is None:
        raise click.UsageError("--null-key needs --key-separator, as otherwise there are no keys")


def _encode_key_argument(text: str | None) -> bytes | None:
    """Return the original bytes of an argument."""
    return None if text is None else os.fsencode(text)


def _iterate_input_records(
    sources: tuple[BinaryIO, ...], kind: str, line_format: LineFormat, common_fields: CommonFields, is_typed: bool
) -> InputRecordPortions:
    """Yield lists of records, each with what can be read at once. With `is_typed`, ask a person to type them."""
    if is_typed:
        separator = line_format.key_separator
        key = "" if separator is None else f", as key{os.fsdecode(separator)}value"
        click.echo(f"{GREETINGS[kind]}{key}; Ctrl-D ends.", err=True)

    def read_records_of_source(source: BinaryIO) -> InputRecordPortions:
        if kind == FILE:
            return iterate_record_of_file(source, common_fields)
        lines = iterate_typed_lines() if is_typed and sys.stdout.isatty() else iterate_lines(source)
        if kind == JSON:
            return iterate_records_of_json(lines, common_fields)
        return iterate_records_of_lines(lines, line_format, common_fields)

    return iterate_sources(sources or (sys.stdin.buffer,), read_records_of_source)


class TopicWriters:
    """The writers of topics. `topic` and `partition` are for all records; None: they say it themselves."""

    def __init__(self, writer_of: Callable[[str], RecordWriter], topic: str | None, partition: int | None) -> None:
        self._writer_of = writer_of
        self._topic = topic
        self._partition = partition
        self._writers: dict[str, RecordWriter] = {} if topic is None else {topic: writer_of(topic)}

    def add_record(self, item: InputRecord) -> None:
        """Add a record. Raises `BadLine` if it says no topic, or a partition that does not exist."""
        topic = item.topic if self._topic is None else self._topic
        if topic is None:
            raise BadLine(f"{item.place}: there is no topic, neither here nor as an argument")
        if topic not in self._writers:
            self._writers[topic] = self._writer_of(topic)
        writer = self._writers[topic]
        partition = item.partition if self._partition is None else self._partition
        if partition is not None and partition >= writer.partitions:
            lacking = describe_missing_partition(topic, partition, writer.partitions)
            if partition == self._partition:
                raise make_operation_error(lacking)
            raise BadLine(f"{item.place}: {lacking}; --partition chooses another")
        writer.add_record(item.record, partition)

    def count_unacknowledged_records(self) -> int:
        """Return the number of records of which nobody knows whether they were written."""
        return sum(writer.unacknowledged_count for writer in self._writers.values())

    def flush(self) -> None:
        """Write what was added."""
        for writer in self._writers.values():
            writer.flush()


def _produce_records(items: InputRecordPortions, outbox: TopicWriters, report: ProduceReport) -> None:
    """Write all records, those before a wrong line too; stop if the broker does not take records any more."""
    try:
        for some in items:
            for item in some:
                outbox.add_record(item)
            outbox.flush()  # what is read next may take long to come
            report.show_progress()
            if report.gave_up:
                return
    except BadLine:
        outbox.flush()
        raise
    except KeyboardInterrupt:
        unknown = outbox.count_unacknowledged_records()
        if unknown:
            click.echo(f"minibroker: {format_count(unknown, 'record')} may have been written, or not", err=True)
        raise
