"""Timeouts of transactional ids: aborts transactions that last too long, and deletes unused ids."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.clock import run_in_slices
from minibroker.broker.transactions.transaction import AT_REST, NEVER_MS, State, Transaction
from minibroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from minibroker.broker.transactions.transaction_coordinator import TransactionCoordinator

log = logging.getLogger("minibroker.transactions")

ABORT_INTERVAL = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
FORGET_INTERVAL = "transaction.remove.expired.transaction.cleanup.interval.ms"


class TransactionExpiry:
    """Checks all transactional ids at the intervals of the settings, once it is started."""

    def __init__(self, coordinator: TransactionCoordinator) -> None:
        self._coordinator = coordinator
        self._started = False

    def start(self) -> None:
        """Start the checks, unless they have started."""
        if not self._started:
            self._started = True
            self._again(ABORT_INTERVAL, self._abort_timed_out)
            self._again(FORGET_INTERVAL, self._forget_unused)

    def _again(self, interval: str, work: Callable[[Transaction], None]) -> None:
        cluster = self._coordinator.cluster

        def run() -> None:
            transactions = self._coordinator.transactions.present()
            run_in_slices(cluster.clock, work, transactions, lambda: self._again(interval, work))

        cluster.clock.call_later(cluster.settings[interval], run)

    def _abort_timed_out(self, transaction: Transaction) -> None:
        """Abort a transaction that has exceeded its producer's transaction.timeout.ms."""
        now_ms = self._coordinator.cluster.clock.wall_ms()
        if transaction.state is not State.ONGOING or transaction.timeout_ms == NEVER_MS:
            return
        if transaction.start_ms + transaction.timeout_ms < now_ms:
            try:
                self._coordinator.abort_and_fence(transaction)
            except KafkaError as error:
                log.warning("%s cannot be aborted yet: %s", transaction.transactional_id, error)
            else:
                log.info("%s is aborted, as it has timed out", transaction.transactional_id)

    def _forget_unused(self, transaction: Transaction) -> None:
        """Delete an id that was unused for transactional.id.expiration.ms."""
        cluster = self._coordinator.cluster
        after_ms = cluster.settings["transactional.id.expiration.ms"]
        if transaction.state in AT_REST and transaction.last_update_ms + after_ms <= cluster.clock.wall_ms():
            try:
                self._coordinator.forget(transaction.transactional_id)
            except KafkaError as error:
                log.warning("%s cannot be forgotten yet: %s", transaction.transactional_id, error)
