"""What a test says to a broker about its groups and transactions: the names of `Broker` for it.

How it is done stands in `hands`.
"""

from __future__ import annotations

from functools import cached_property

from minibroker.quantities import Duration
from minibroker.testing.faults.engine import Fault
from minibroker.testing.hands import Groups, Held, Transactions
from minibroker.testing.verbs import Verbs


class GroupVerbs(Verbs):
    """Groups and transactions. Each raises KafkaError for one that is not there."""

    @cached_property
    def _groups(self) -> Groups:
        return Groups(self)

    @cached_property
    def _transactions(self) -> Transactions:
        return Transactions(self)

    def force_rebalance(self, group: str) -> None:
        """Make the members of a group share out its partitions anew."""
        self.loop.call(lambda: self._groups.force_rebalance(group))

    def evict(self, group: str, member: str | None = None) -> list[str]:
        """Put a member out of its group, or all of them, as if they had fallen silent; whom."""
        return self.loop.call(lambda: self._groups.evict(group, member))

    def slow_joins(self, group: str, delay: Duration) -> Fault:
        """Make each JoinGroup, and KIP-848's heartbeat that joins, take this long, until the fault is removed."""
        return self.faults.add(api=["JoinGroup", "ConsumerGroupHeartbeat"], group=group, where=_joins, delay=delay)

    def fence(self, transactional_id: str) -> None:
        """Fence the producer that has this transactional id; an ongoing transaction of it is aborted."""
        self.loop.call(lambda: self._transactions.fence(transactional_id))

    def transaction_state(self, transactional_id: str) -> str:
        """The state of its transaction: Empty, Ongoing, PrepareCommit, CompleteCommit, ..."""
        return self.loop.call(lambda: self._transactions.state(transactional_id))

    def hold(self, transactional_id: str, state: Held = "prepared") -> None:
        """Keep transactions of this id in a state until `release`.

        `prepared`: decided, without markers, so that readers of committed records wait, and a new producer gets
        CONCURRENT_TRANSACTIONS. `ongoing`: EndTxn is not answered.
        """
        self.loop.call(lambda: self._transactions.hold(transactional_id, state))

    def release(self, transactional_id: str) -> None:
        """Let what was held go on."""
        self.loop.call(lambda: self._transactions.release(transactional_id))


def _joins(request: object) -> bool:
    """Whether a request is a member's that joins: a JoinGroup, or a heartbeat with the epoch 0."""
    return getattr(request, "member_epoch", 0) == 0
