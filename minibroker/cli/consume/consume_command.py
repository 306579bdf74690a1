"""`minibroker consume`: prints records of any Kafka, with our own client.

`consume_sources` chooses partitions and offsets, `consume_lines` formats records; this ends the command. Files of
Parquet and Arrow are written by the pipeline's readers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, Seconds, add_client_options
from minibroker.cli.consume.consume_lines import (
    NULL,
    Decoders,
    FormatRecord,
    make_decoding_formatter,
    make_formatter,
    make_json_formatter,
    make_line_formatter,
    make_schema_formatter,
    parse_format,
)
from minibroker.cli.consume.consume_sources import ConsumeSelection, GroupSource, PartitionsSource, RecordSource
from minibroker.cli.places import PartitionPlace, RequestedTopic, is_pattern, parse_offset_or_time, parse_topic
from minibroker.cli.schemas.registries import make_registry_options
from minibroker.cli.shared import PARTITION, NamedCommand, make_json_option, make_names_completer, make_operation_error

if TYPE_CHECKING:
    from minibroker.client.blocking import Client
    from minibroker.pipeline.log_opening import Log, Place
    from minibroker.registry.registry_client import RegistryClient


SUFFIXES: Final = (".parquet", ".arrow")
REMEDY: Final = "--out needs the extra arrow: python3 -m pip install pyarrow numpy"
ISOLATION_LEVELS: Final = "read_committed", "read_uncommitted"  # the first is librdkafka's default, too
FOLLOW_MS: Final = 500  # how long a fetch may wait for records, unless the command may have to end earlier
LAST_MAX: Final = 1_000_000  # they are kept in memory


def write_records_file(
    path: str,
    bootstrap: Bootstrap,
    topics: Sequence[RequestedTopic],
    partitions: Sequence[int],
    start: Sequence[PartitionPlace],
    end: Sequence[PartitionPlace],
    *,
    committed: bool,
) -> int:
    """Write the records of topics to a file, and return how many. Raises click.ClickException."""
    if Path(path).suffix not in SUFFIXES:
        raise click.UsageError(f"--out: {path} ends with neither of {', '.join(SUFFIXES)}")
    try:
        from minibroker.pipeline.log_source import PipelineError

        with _replace_file_when_complete(path) as unfinished:
            count = _write_table_file(
                str(unfinished), path, _open_logs(bootstrap, topics, partitions, start, end, committed)
            )
    except ImportError:
        raise make_operation_error(REMEDY) from None
    except (OSError, PipelineError) as error:
        raise make_operation_error(str(error)) from None
    return count


def _open_logs(
    bootstrap: Bootstrap,
    topics: Sequence[RequestedTopic],
    partitions: Sequence[int],
    start: Sequence[PartitionPlace],
    end: Sequence[PartitionPlace],
    committed: bool,
) -> list[Log]:
    from minibroker.pipeline import open

    if any(is_pattern(name) for name, _ in topics):
        raise click.UsageError("--out takes names of topics, and no patterns")
    return [
        open(
            bootstrap.servers,
            name,
            partitions=indexes or partitions,
            start=_get_only_offset_or_time(start, "earliest"),
            end=_get_only_offset_or_time(end, "latest"),
            isolation="read_committed" if committed else "read_uncommitted",
            client=dict(bootstrap.settings),
        )
        for name, indexes in topics
    ]


def _get_only_offset_or_time(places: Sequence[PartitionPlace], option: str) -> Place:
    """Return the offset or time for all partitions, None for `option`, the default. Raises click.UsageError."""
    where = places[0] if places else PartitionPlace(option)
    if len(places) > 1 or where.partition is not None or where.kind not in (option, "offset", "time"):
        raise click.UsageError("with --out, --from and --to are one offset or time each")
    if where.kind == "time":
        return datetime.fromtimestamp(where.number / 1000, UTC)
    return where.number if where.kind == "offset" else None


@contextmanager
def _replace_file_when_complete(path: str) -> Iterator[Path]:
    """Yield the path of a temporary file, which takes the place of `path` at the end; an error removes it."""
    unfinished = Path(path).with_name(f".{Path(path).name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_table_file(unfinished: str, path: str, logs: Sequence[Log]) -> int:
    """Write the records as Parquet or Arrow, by the suffix of `path`. Return how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = logs[0].records().schema, 0
    writer: Any = (
        pq.ParquetWriter(unfinished, schema, compression="zstd")
        if path.endswith(".parquet")
        else pa.ipc.new_file(unfinished, schema)
    )
    with writer:
        for log in logs:
            for batch in log.records():
                writer.write_batch(batch)
                count += batch.num_rows
    return count


@click.command(cls=NamedCommand)
@click.argument("topics", metavar="TOPIC[:P,...]...", nargs=-1, required=True, type=parse_topic,
                shell_complete=make_names_completer("topics"))  # fmt: skip
@click.option("--from", "-o", "start", metavar="WHERE", type=parse_offset_or_time, multiple=True,
              help="earliest, latest, an offset, -N for N before the end, or a time.  [default: earliest]")  # fmt: skip
@click.option("--to", "end", metavar="WHERE", type=parse_offset_or_time, multiple=True,
              help="End before this place.  [default: the end]")  # fmt: skip
@click.option("--last", "-n", type=click.IntRange(1, LAST_MAX), help="Only the last N records, by their timestamps.")
@click.option("--partition", "partitions", type=PARTITION, multiple=True, help="[default: all] Can be repeated.")
@click.option("--count", type=click.IntRange(1), help="End after this many records.")
@click.option("--follow/--exit", "-F/-e", help="Wait for more records, or end after the last.  [default: exit]")
@click.option("--timeout", "timeout_s", metavar="SECONDS", type=Seconds(0),
              help="End after this time without a record.")  # fmt: skip
@click.option("--group", metavar="NAME", help="Read as a member of this group: go on where it is, and commit.",
              shell_complete=make_names_completer("groups"))  # fmt: skip
@click.option("--format", "-f", "form", metavar="TEXT", type=parse_format,
              help="Print each record like this, with kcat's tokens: '%t [%p] %o: %k %s\\n'.")  # fmt: skip
@click.option("--key-separator", metavar="TEXT", help="Print keys too, with this text between key and value.")
@click.option("--headers", is_flag=True, help="Print headers too, before the key.")
@click.option("--timestamps", is_flag=True, help="Print timestamps too, at the beginning.")
@click.option("--null", metavar="TEXT", help="The text for null.  [default: null, or nothing with --format]")
@click.option("--decode", is_flag=True,
              help="Print what records of Kafka's internal topics mean, or of any with --registry.")  # fmt: skip
@click.option("--out", metavar="FILE", help="Write the records to a file of this name, .parquet or .arrow.")
@make_registry_options(None, "Decode by the schemas of this registry, as in http://NAME:PASSWORD@HOST:PORT.")
@add_client_options
@make_json_option("Print a JSON object for each record.")
def consume(
    topics: tuple[RequestedTopic, ...],
    start: tuple[PartitionPlace, ...],
    end: tuple[PartitionPlace, ...],
    last: int | None,
    partitions: tuple[int, ...],
    count: int | None,
    follow: bool,
    timeout_s: float | None,
    group: str | None,
    form: str | None,
    key_separator: str | None,
    headers: bool,
    timestamps: bool,
    null: str | None,
    decode: bool,
    out: str | None,
    registry: RegistryClient | None,
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Print the records of topics.

    TOPIC is a name, a pattern like 'orders-*', or a regular expression like '^orders-'. With :0,2 only these partitions
    of it are read.

    WHERE is for all partitions, or for one, as in 0=42. A time is like 2026-01-31T12:00:00, 12:30, yesterday, '2 hours
    ago', or @ and the ms since 1970; without a zone it is local.

    A line is a record's value, or null; invalid UTF-8 and control characters are escaped, such as \\x1b. With --json,
    texts are "key" and "value", and invalid UTF-8 is "key_base64" and "value_base64"; produce --input json writes the
    same records.

    --format takes %t topic, %p partition, %o offset, %k key, %s value, %h headers, %T timestamp in ms, %d as a date, %K
    and %S sizes of key and value (-1: null), %R size of the value in four bytes, %%, \\n, \\r, \\t, and \\xHH. Keys and
    values are printed as they are, but escaped in a terminal.

    \b
    Example:
        minibroker consume orders --from yesterday --to '2 hours ago' --json
        minibroker consume orders --from yesterday --out orders.parquet
        minibroker consume orders -n 10 --follow -f '%t %p %o %k: %s\\n'
    """
    _check_option_combination(
        {"--json": as_json, "--format": form, "--key-separator": key_separator, "--headers": headers,
         "--timestamps": timestamps, "--decode": decode, "--null": null, "--group": group, "--partition": partitions,
         "--to": end, "--last": last, "--follow": follow, "--out": out, "--count": count, "--timeout": timeout_s}
    )  # fmt: skip
    if out is not None:
        bootstrap, read_committed = _split_off_isolation_level(bootstrap)
        written = write_records_file(out, bootstrap, topics, partitions, start, end, committed=read_committed)
        click.echo(f"{written:,} record{'' if written == 1 else 's'} written to {out}")
        return
    schemas = registry if decode and not _are_internal_topics(topics) else None
    decoders = _find_decoders(topics) if decode and schemas is None else {}
    if form is not None:
        line = make_formatter(form, os.fsencode(null or ""), is_terminal=sys.stdout.isatty())
    else:
        shown = NULL if null is None else os.fsencode(null)
        line = make_line_formatter(shown, key_separator, timestamps=timestamps, headers=headers)
    if schemas is not None:
        line = make_schema_formatter(schemas, line, as_json=as_json)
    else:
        line = make_json_formatter(decoders) if as_json else make_decoding_formatter(decoders, line) if decode else line
    bootstrap, read_committed = _split_off_isolation_level(bootstrap)
    selected = [(name, indexes or partitions) for name, indexes in topics]
    with connect_client(bootstrap) as client:
        source = make_record_source(client, group, ConsumeSelection(selected, start, end, last, follow, read_committed))
        print_records(source, line, ConsumeEnding(source, follow=follow, count=count, timeout_s=timeout_s))


# Options that cannot be used together, and why.
CONFLICTS: Final = (
    ("--json", "--format", "which is another format"),
    ("--json", "--key-separator", "which names the key"),
    ("--json", "--headers", "which has them"),
    ("--json", "--timestamps", "which has them"),
    ("--json", "--null", "which has a null"),
    ("--format", "--key-separator", "which has %k"),
    ("--format", "--headers", "which has %h"),
    ("--format", "--timestamps", "which has %d and %T"),
    ("--format", "--decode", "which prints bytes"),
    ("--group", "--partition", "which assigns partitions"),
    ("--group", "--last", "which goes on where it is"),
    ("--group", "--to", "which goes on where it is"),
    ("--follow", "--to", "which has no end"),
    *(("--out", each, "which prints lines") for each in
      ("--json", "--format", "--key-separator", "--headers", "--timestamps", "--null", "--decode")),
    *(("--out", each, "which reads records one by one") for each in
      ("--group", "--last", "--follow", "--count", "--timeout")),
)  # fmt: skip


def _check_option_combination(options: dict[str, object]) -> None:
    """Raise click.UsageError for options that contradict each other."""
    for one, other, why in CONFLICTS:
        if all(options[each] not in (None, False, ()) for each in (one, other)):
            raise click.UsageError(f"{other} cannot be used with {one}, {why}")


def _are_internal_topics(topics: Sequence[RequestedTopic]) -> bool:
    """Return whether all topics are internal ones of Kafka."""
    from minibroker.cli.dump.dump_records import COORDINATORS_TOPICS, METADATA_TOPIC

    return all(name in (*COORDINATORS_TOPICS, METADATA_TOPIC) for name, _ in topics)


def _find_decoders(topics: Sequence[RequestedTopic]) -> Decoders:
    """Return the decoders of internal topics. Raises click.UsageError for others, whose meaning is not known."""
    from minibroker.cli.dump.dump_records import COORDINATORS_TOPICS, METADATA_TOPIC, find_decoder

    for name, _ in topics:
        if name not in (*COORDINATORS_TOPICS, METADATA_TOPIC):  # of the latter, it is said later where to find it
            what = "no pattern" if is_pattern(name) else f"not {name}"
            known = ", ".join(COORDINATORS_TOPICS)
            raise click.UsageError(f"--decode is for {known}, {what}; with --registry it is for others")
    decoders = {name: find_decoder(name) for name, _ in topics}
    return {name: decoder for name, decoder in decoders.items() if decoder is not None}


def _split_off_isolation_level(bootstrap: Bootstrap) -> tuple[Bootstrap, bool]:
    """Return the servers without the isolation level, and whether it is to read committed records only."""
    settings = dict(bootstrap.settings)
    level = settings.pop("isolation.level", ISOLATION_LEVELS[0])
    if level not in ISOLATION_LEVELS:
        raise click.UsageError(f"--client: isolation.level must be {' or '.join(ISOLATION_LEVELS)}, not {level!r}")
    return bootstrap._replace(settings=tuple(settings.items())), level == ISOLATION_LEVELS[0]


def make_record_source(client: Client, group: str | None, selection: ConsumeSelection) -> RecordSource:
    """Return the source of the selected records: a member of the group, or a consumer without one."""
    return PartitionsSource(client, selection) if group is None else GroupSource(client, group, selection)


def print_records(source: RecordSource, format_line: FormatRecord, ending: ConsumeEnding) -> None:
    """Print records until the end, or Ctrl-C. Then what was surely printed is committed, if there is a group."""
    output = sys.stdout.buffer
    try:
        while not ending.is_reached():
            last, lines = None, []
            for record in source.poll(ending.choose_wait_ms()):
                lines.append(format_line(record))
                if ending.count_record():
                    last = record
                    break
            output.write(b"".join(lines))  # at once: without a buffer, each call is one of the system
            output.flush()
            source.record_printed_position(last)
        if ending.is_empty and sys.stdout.isatty():
            click.echo("minibroker: there are no records", err=True)
    finally:
        source.close()


class ConsumeEnding:
    """When the command ends: after so many records, so many seconds without one, or at the end of all partitions."""

    def __init__(self, source: RecordSource, *, follow: bool, count: int | None, timeout_s: float | None) -> None:
        self.is_empty = True
        self._source = source
        self._follow = follow
        self._left = count
        self._timeout_s = timeout_s
        self._last_s = time.monotonic()

    def count_record(self) -> bool:
        """Take note of a record; return whether it is the last one to print."""
        self.is_empty = False
        self._last_s = time.monotonic()
        self._left = None if self._left is None else self._left - 1
        return self._left == 0

    def is_reached(self) -> bool:
        """Return whether to end now."""
        if self._left == 0 or (not self._follow and self._source.is_at_end):
            return True
        return self._timeout_s is not None and time.monotonic() - self._last_s >= self._timeout_s

    def choose_wait_ms(self) -> int:
        """Return how long a fetch may wait for records: 0 without --follow, as an empty fetch then shows the end."""
        if not self._follow:
            return 0
        left_s = FOLLOW_MS / 1000 if self._timeout_s is None else self._last_s + self._timeout_s - time.monotonic()
        return max(0, min(FOLLOW_MS, int(left_s * 1000)))
