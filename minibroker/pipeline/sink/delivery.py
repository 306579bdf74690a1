"""The two deliveries, without Spark: at least once, and exactly once by a transaction that stays open until the commit.

Exactly once, a task writes under a transactional id of its own. It takes the id over first, which aborts what an
earlier attempt left open, and then reads the id's marker: the number of the batch after the last that was committed.
If that is beyond this batch the rows are there already. Else they are written, and the next marker with them, in one
transaction; the driver ends it when all tasks are through. So a crash between the ends of two transactions is made
good by doing the batch again: who was committed finds his marker.

         task                                                        driver
    InitProducerId ─> OffsetFetch ─> Produce... ─> TxnOffsetCommit ┐
    InitProducerId ─> OffsetFetch ─> (is there: nothing)           ├─> EndTxn, EndTxn, ...
    InitProducerId ─> OffsetFetch ─> Produce... ─> TxnOffsetCommit ┘
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.sink.identity import Identity, request_producer_id
from minibroker.pipeline.sink.sender import Sender
from minibroker.pipeline.sink.sink_errors import Fenced, WriteFailed
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.sink_transaction import (
    PRODUCE_VERSIONS,
    Generation,
    Marker,
    Transaction,
)
from minibroker.pipeline.sink.task import Count, Counted, TaskWriter

_IDEMPOTENT_PRODUCE_VERSION: Final = 12
_PATIENCE_MS: Final = 5_000  # for what is only good to have


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that holds a task's rows and waits to be ended; `marker` is in it."""

    transactional_id: str
    producer_id: int
    epoch: int
    generation: Generation
    marker: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The result of a task's rows; `transaction` is the one to end, if there is one."""

    rows: int
    transaction: Open | None = None


def connected(settings: SinkSettings) -> Client:
    """A client of the settings' brokers. Raises `OptionError` for a setting of `kafka.` that is not known."""
    return Client(settings.bootstrap_servers, settings.client)


def write_at_least_once(settings: SinkSettings, batches: Iterable[pa.RecordBatch], task: int) -> Delivered:
    """Write rows so that all of them are in the brokers when it returns; within one call also none twice."""
    with connected(settings) as client:
        identity = Identity()

        def renew() -> None:
            identity.become(*request_producer_id(client))

        if settings.idempotent:
            renew()
        sender = Sender(
            client, settings, identity, _IDEMPOTENT_PRODUCE_VERSION, renew=renew if settings.idempotent else None
        )
        return Delivered(_written(TaskWriter(client, settings, sender, task), batches).rows)


def write_exactly_once(
    settings: SinkSettings, batches: Iterable[pa.RecordBatch], transactional_id: str, number: int, task: int
) -> Delivered:
    """Write the rows of batch `number` into a transaction and leave it open, unless they are committed already.

    Raises `WriteFailed` if it had other rows when it was committed, or if a later batch is.
    """
    rest = (batch for batch in batches if batch.num_rows)
    first = next(rest, None)
    if first is None:
        return Delivered(0)
    with connected(settings) as client:
        transaction = Transaction(client, settings, transactional_id)
        transaction.begin()
        marker = transaction.marker()
        if marker is not None and marker.value > number:
            return Delivered(_skipped(_chain(first, rest), marker, number, transactional_id))
        try:
            writer = TaskWriter(client, settings, sender_in(transaction, client, settings), task)
            note = _note(_written(writer, _chain(first, rest)))
            transaction.mark(Marker(number + 1, note))
        except BaseException:
            abort_in_passing(settings, transaction)
            raise
        identity = transaction.identity
        left = Open(transactional_id, identity.producer_id, identity.epoch, transaction.generation, number + 1)
        return Delivered(writer.counted.rows, left)


def commit(settings: SinkSettings, transactions: Sequence[Open]) -> None:
    """Commit transactions, one after another. It may be done again after it failed, also by another process.

    Raises `WriteFailed` at the first that cannot be committed and has not been; the ones before it stay committed.
    """
    if not transactions:
        return
    with connected(settings) as client:
        for each in transactions:
            try:
                _taken_up(client, settings, each).end(commit=True)
            except Fenced as error:
                if not _is_committed(settings, each):
                    raise Fenced(
                        f"{error}: the rows of this task are not committed: its transaction took longer than "
                        f"kafka.transaction.timeout.ms={settings.transaction_timeout_ms}, or somebody else writes "
                        "under the same transactional id"
                    ) from None


def abort(settings: SinkSettings, transactions: Sequence[Open]) -> None:
    """Abort the transactions that are open still. Raises `WriteFailed` after it has tried all."""
    failures: list[WriteFailed] = []
    if not transactions:
        return
    with connected(settings) as client:
        for each in transactions:
            try:
                _taken_up(client, settings, each).end(commit=False)
            except Fenced:
                continue  # it was committed, timed out, or taken over: there is nothing to abort
            except WriteFailed as error:
                failures.append(error)
    if failures:
        raise failures[0]


def sender_in(transaction: Transaction, client: Client, settings: SinkSettings) -> Sender:
    """A sender that writes into a transaction."""
    version = PRODUCE_VERSIONS[transaction.generation]
    return Sender(client, settings, transaction.identity, version, before=transaction.add)


def abort_in_passing(settings: SinkSettings, transaction: Transaction) -> None:
    """Try to abort, so that readers need not wait; who takes the id over, or the timeout, would do it as well."""
    hasty, transactional_id, identity = _hasty(settings), transaction.transactional_id, transaction.identity
    with suppress(WriteFailed), connected(hasty) as client:
        Transaction(client, hasty, transactional_id, identity, transaction.generation).end(commit=False)


def _is_committed(settings: SinkSettings, left: Open) -> bool:
    """Whether the rows are committed, though this transaction is not there any more, as the marker says.

    While somebody else has an open transaction under the id the marker cannot be told: then they are taken not to be.
    """
    hasty = _hasty(settings)
    try:
        with connected(hasty) as client:
            marker = _taken_up(client, hasty, left).marker()
    except WriteFailed:
        return False
    return marker is not None and marker.value >= left.marker


def _hasty(settings: SinkSettings) -> SinkSettings:
    patience_ms = min(settings.delivery_timeout_ms, _PATIENCE_MS)
    client = {**settings.client, "default.api.timeout.ms": str(patience_ms)}
    return replace(settings, delivery_timeout_ms=patience_ms, client=client)


def _taken_up(client: Client, settings: SinkSettings, left: Open) -> Transaction:
    identity = Identity(left.producer_id, left.epoch, left.transactional_id)
    return Transaction(client, settings, left.transactional_id, identity, left.generation)


def _written(writer: TaskWriter, batches: Iterable[pa.RecordBatch]) -> Counted:
    for batch in batches:
        writer.write(batch)
    writer.flush()
    return writer.counted


def _skipped(batches: Iterable[pa.RecordBatch], marker: Marker, number: int, transactional_id: str) -> int:
    """Take rows and write none, as they are committed; how many there are. Raises `WriteFailed` if they are others."""
    if marker.value > number + 1:
        raise WriteFailed(
            f"transactional id {transactional_id}: batch {marker.value - 1} is committed, and now batch {number} is to "
            "be: the checkpoint is older than what was written, or two queries share it"
        )
    count = Count()
    for batch in batches:
        count.add(batch)
    if _note(count.total) != marker.note:
        raise WriteFailed(
            f"transactional id {transactional_id}: batch {number} is committed with {marker.note}, and is now given "
            f"with {_note(count.total)}: which task gets which rows must not change when a batch is done again"
        )
    return count.total.rows


def _note(counted: Counted) -> str:
    return json.dumps({"rows": counted.rows, "bytes": counted.size_bytes})


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
