"""What `minibroker produce` says: the records that were written, those that were not, and progress meanwhile."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from minibroker.cli.shared import make_operation_error
from minibroker.quantities import format_count

if TYPE_CHECKING:
    from minibroker.client.record_producing import ProduceOutcome

PROGRESS_S: Final = 1.0
TRANSACTION_ENDS: Final = {
    "committed": "the transaction is committed",
    "aborted": "the transaction is aborted: consumers do not see these records",
    "open": "the end of the transaction was not confirmed",
}
CLEAR_LINE: Final = "\r\x1b[K"


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
        """Count a batch."""
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
