"""Timeouts of transactional ids: aborts transactions that last too long, and deletes unused ids."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from minibroker.broker.transactions.transaction import AT_REST, NEVER_MS, State
from minibroker.protocol.errors import KafkaError

if TYPE_CHECKING:
    from minibroker.broker.transactions.coordinator import TransactionCoordinator

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
            self._again(ABORT_INTERVAL, self.abort_timed_out)
            self._again(FORGET_INTERVAL, self.forget_unused)

    def _again(self, interval: str, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._again(interval, work)

        cluster = self._coordinator.cluster
        cluster.clock.call_later(cluster.settings[interval], run)

    def abort_timed_out(self) -> None:
        """Abort the transactions that have exceeded their producer's transaction.timeout.ms."""
        now_ms = self._coordinator.cluster.clock.wall_ms()
        for transaction in list(self._coordinator.transactions.values()):
            if transaction.state is not State.ONGOING or transaction.timeout_ms == NEVER_MS:
                continue
            if transaction.start_ms + transaction.timeout_ms < now_ms:
                try:
                    self._coordinator.abort_and_fence(transaction)
                except KafkaError as error:
                    log.warning("%s cannot be aborted yet: %s", transaction.transactional_id, error)
                else:
                    log.info("%s is aborted, as it has timed out", transaction.transactional_id)

    def forget_unused(self) -> None:
        """Delete the ids that were unused for transactional.id.expiration.ms."""
        coordinator = self._coordinator
        after_ms = coordinator.cluster.settings["transactional.id.expiration.ms"]
        now_ms = coordinator.cluster.clock.wall_ms()
        for transaction in list(coordinator.transactions.values()):
            if transaction.state in AT_REST and transaction.last_update_ms + after_ms <= now_ms:
                try:
                    coordinator.forget(transaction.transactional_id)
                except KafkaError as error:
                    log.warning("%s cannot be forgotten yet: %s", transaction.transactional_id, error)
