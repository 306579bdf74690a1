"""The two deliveries, without Spark: at least once, and exactly once by transactions that stay open until the commit.

For exactly once, each task has its own transactional id. It first takes the id over, which aborts an open transaction
of an earlier attempt. Then it reads the id's marker: the number of the batch after the last committed one. If that is
beyond this batch, the rows are committed already. Otherwise it writes them and the next marker in one transaction,
which the driver ends when all tasks have finished. If there is a crash between the ends of two transactions, the batch
is repeated, and tasks that were committed find their markers.

         task                                                        driver
    InitProducerId ─> OffsetFetch ─> Produce... ─> TxnOffsetCommit ┐
    InitProducerId ─> OffsetFetch ─> (is there: nothing)           ├─> EndTxn, EndTxn, ...
    InitProducerId ─> OffsetFetch ─> Produce... ─> TxnOffsetCommit ┘
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.sink import sink_transaction
from minibroker.pipeline.sink.sender import ProduceSender
from minibroker.pipeline.sink.sink_settings import SinkSettings
from minibroker.pipeline.sink.task import RowCounts, TaskWriter

_PATIENCE_MS: Final = 5_000  # for requests that may fail


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction with a task's rows; `marker` is in it."""

    transactional_id: str
    producer_id: int
    epoch: int
    marker: int


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The result of a task; `transaction` is the one to end, if any."""

    rows: int
    transaction: OpenTransaction | None = None


def connect_client(settings: SinkSettings) -> Client:
    """Return a client of the settings' brokers. Raises `OptionError` for unknown settings of `kafka.`."""
    return Client(settings.bootstrap_servers, settings.client)


def write_at_least_once(settings: SinkSettings, batches: Iterable[pa.RecordBatch], task: int) -> DeliveryResult:
    """Write rows. All of them are in the brokers when it returns; within one call, none is written twice."""
    with connect_client(settings) as client:
        producer = sink_transaction.request_producer_id(client) if settings.idempotent else (-1, -1)
        sender = ProduceSender(client, settings, sink_transaction.ProducerIdentity(*producer))
        return DeliveryResult(_write_batches(TaskWriter(client, settings, sender, task), batches).rows)


def write_exactly_once(
    settings: SinkSettings, batches: Iterable[pa.RecordBatch], transactional_id: str, number: int, task: int
) -> DeliveryResult:
    """Write the rows of batch `number` into a transaction and leave it open, unless they are committed already.

    Raises `WriteFailed` if the batch was committed with other rows, or if a later one is committed.
    """
    rest = (batch for batch in batches if batch.num_rows)
    first = next(rest, None)
    if first is None:
        return DeliveryResult(0)
    with connect_client(settings) as client:
        transaction = sink_transaction.SinkTransaction(client, settings, transactional_id)
        transaction.init_producer_id()
        marker = transaction.fetch_marker()
        if marker is not None and marker.value > number:
            return DeliveryResult(_skip_rows(chain((first,), rest), marker, number, transactional_id))
        try:
            writer = TaskWriter(client, settings, make_sender(transaction, client, settings), task)
            note = _encode_counts(_write_batches(writer, chain((first,), rest)))
            transaction.add_marker(sink_transaction.PositionMarker(number + 1, note))
        except BaseException:
            try_to_abort_transaction(settings, transaction)
            raise
        identity = transaction.identity
        left = OpenTransaction(transactional_id, identity.producer_id, identity.epoch, number + 1)
        return DeliveryResult(writer.counted.rows, left)


def commit_transactions(settings: SinkSettings, transactions: Sequence[OpenTransaction]) -> None:
    """Commit transactions, one after another. A call after a failed one may repeat it, also in another process.

    Raises `WriteFailed` at the first one that was not committed and cannot be; the ones before it stay committed.
    """
    if not transactions:
        return
    with connect_client(settings) as client:
        for each in transactions:
            try:
                _resume_transaction(client, settings, each).end_transaction(commit=True)
            except sink_transaction.ProducerFenced as error:
                if not _is_committed(settings, each):
                    raise sink_transaction.ProducerFenced(
                        f"{error}: the rows of this task are not committed: its transaction took longer than "
                        f"kafka.transaction.timeout.ms={settings.transaction_timeout_ms}, or another producer writes "
                        "under the same transactional id"
                    ) from None


def abort_transactions(settings: SinkSettings, transactions: Sequence[OpenTransaction]) -> None:
    """Abort the transactions that are still open. Raises `WriteFailed` after all attempts."""
    failures: list[sink_transaction.WriteFailed] = []
    if not transactions:
        return
    with connect_client(settings) as client:
        for each in transactions:
            try:
                _resume_transaction(client, settings, each).end_transaction(commit=False)
            except sink_transaction.ProducerFenced:
                continue  # it was committed, timed out, or taken over
            except sink_transaction.WriteFailed as error:
                failures.append(error)
    if failures:
        raise failures[0]


def make_sender(transaction: sink_transaction.SinkTransaction, client: Client, settings: SinkSettings) -> ProduceSender:
    """Return a sender that writes into a transaction."""
    return ProduceSender(client, settings, transaction.identity, before=transaction.add_partitions)


def try_to_abort_transaction(settings: SinkSettings, transaction: sink_transaction.SinkTransaction) -> None:
    """Try to abort, so that readers need not wait. A takeover of the id, or the timeout, would also do it."""
    impatient, transactional_id = _shorten_timeouts(settings), transaction.transactional_id
    with suppress(sink_transaction.WriteFailed), connect_client(impatient) as client:
        sink_transaction.SinkTransaction(client, impatient, transactional_id, transaction.identity).end_transaction(
            commit=False
        )


def _is_committed(settings: SinkSettings, transaction: OpenTransaction) -> bool:
    """Return whether the rows are committed by the marker, although this transaction no longer exists.

    While the id has another open transaction, the marker is unknown: then they count as not committed.
    """
    impatient = _shorten_timeouts(settings)
    try:
        with connect_client(impatient) as client:
            marker = _resume_transaction(client, impatient, transaction).fetch_marker()
    except sink_transaction.WriteFailed:
        return False
    return marker is not None and marker.value >= transaction.marker


def _shorten_timeouts(settings: SinkSettings) -> SinkSettings:
    """Return the settings with at most `_PATIENCE_MS` for a delivery and a request."""
    patience_ms = min(settings.delivery_timeout_ms, _PATIENCE_MS)
    client = {**settings.client, "default.api.timeout.ms": str(patience_ms)}
    return replace(settings, delivery_timeout_ms=patience_ms, client=client)


def _resume_transaction(
    client: Client, settings: SinkSettings, open_transaction: OpenTransaction
) -> sink_transaction.SinkTransaction:
    """Return the transaction that a task has left open, with the task's producer id and epoch."""
    identity = sink_transaction.ProducerIdentity(
        open_transaction.producer_id, open_transaction.epoch, open_transaction.transactional_id
    )
    return sink_transaction.SinkTransaction(client, settings, open_transaction.transactional_id, identity)


def _write_batches(writer: TaskWriter, batches: Iterable[pa.RecordBatch]) -> RowCounts:
    for batch in batches:
        writer.write_rows(batch)
    writer.flush_rows()
    return writer.counted


def _skip_rows(
    batches: Iterable[pa.RecordBatch], marker: sink_transaction.PositionMarker, number: int, transactional_id: str
) -> int:
    """Return the number of rows, which are committed and not written again. Raises `WriteFailed` if they are others."""
    if marker.value > number + 1:
        raise sink_transaction.WriteFailed(
            f"transactional id {transactional_id}: batch {marker.value - 1} is committed, but batch {number} was to be "
            "next: the checkpoint is older than the written rows, or two queries share it"
        )
    counted = RowCounts()
    for batch in batches:
        counted = counted.count_batch(batch)
    if _encode_counts(counted) != marker.note:
        raise sink_transaction.WriteFailed(
            f"transactional id {transactional_id}: batch {number} was committed with {marker.note}, but the task has "
            f"{_encode_counts(counted)} now. Each task must write the same rows when Spark repeats a batch"
        )
    return counted.rows


def _encode_counts(counted: RowCounts) -> str:
    """Return the counts as JSON, for the note of a marker."""
    return json.dumps({"rows": counted.rows, "bytes": counted.size_bytes})
