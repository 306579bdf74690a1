"""Groups and transactions in the hand of a test: rebalances, members put out, producers fenced, transactions held.

It is done on the broker's loop by what the coordinators do themselves when a member or a producer gives them reason to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from minibroker.broker.groups.classic import rebalance
from minibroker.broker.groups.classic.group import ClassicGroup
from minibroker.broker.groups.consumer import leaving
from minibroker.broker.groups.consumer.group import ConsumerGroup
from minibroker.broker.groups.consumer.updating import Update
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.broker.requests.parked import Parked
from minibroker.broker.transactions.transaction import State
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.groups.group import Group
    from minibroker.testing.embedded import Embedded

Held = Literal["ongoing", "prepared"]
REASON = "a test wants it"


class Groups:
    """Groups by their ids. Every method raises KafkaError(GROUP_ID_NOT_FOUND)."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker

    def force_rebalance(self, group: str) -> None:
        """Make all members join again, or, of a KIP-848 group, begin another epoch."""
        found = self._found(group)
        if isinstance(found, ClassicGroup):
            if not found.is_empty:
                rebalance.prepare_or_complete(found, REASON)
        elif isinstance(found, ConsumerGroup):
            update = Update(found)
            update.look_at_topics(changed=True)
            update.commit()

    def evict(self, group: str, member: str | None) -> list[str]:
        """Put a member out, or all, as if their session had expired; return their ids."""
        found = self._found(group)
        if isinstance(found, ClassicGroup):
            return self._evict_classic(found, member)
        assert isinstance(found, ConsumerGroup)
        members = [each for each in found.members.values() if member in (None, each.member_id)]
        self._check(members, group, member)
        leaving.fence(found, members)
        return [each.member_id for each in members]

    def _evict_classic(self, group: ClassicGroup, member: str | None) -> list[str]:
        gone = [each for each in list(group.members) if member in (None, each)]
        self._check(gone, group.group_id, member)
        for each in gone:
            group.remove(each)
        rebalance.after_removal(group, REASON)
        return gone

    def _check(self, members: Sequence[object], group: str, member: str | None) -> None:
        if member is not None and not members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group!r} has no member {member!r}")

    def _found(self, group: str) -> Group:
        found = self._broker.running.cluster.groups.groups.get(group)
        if found is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        return found


class Transactions(Interceptor):
    """Transactions by their transactional ids. It is an interceptor while it holds ends of them back."""

    def __init__(self, broker: Embedded) -> None:
        self._broker = broker
        self._ends: dict[str, list[tuple[Call, Parked]]] = {}
        broker.when_reset.append(self._forget)

    @property
    def _cluster(self) -> Cluster:
        return self._broker.running.cluster

    def fence(self, transactional_id: str) -> None:
        """Fence the producer that has this id; an ongoing transaction of it is aborted. Raises KafkaError."""
        coordinator = self._cluster.transactions
        transaction = coordinator.find(transactional_id)
        if transaction.state is not State.ONGOING:
            coordinator.initialize(transactional_id, transaction.timeout_ms)
            return
        if not transaction.epochs_exhausted:
            # The abort takes the next epoch. A producer that has the one before may abort, too, and go on (KIP-890).
            transaction = transaction._replace(producer_epoch=transaction.producer_epoch + 1)
        coordinator.abort_and_fence(transaction)

    def state(self, transactional_id: str) -> str:
        """The state of its transaction, as DescribeTransactions names it. Raises KafkaError."""
        return self._cluster.transactions.find(transactional_id).state.label

    def hold(self, transactional_id: str, state: Held) -> None:
        """Keep its transactions in a state: `ongoing`, as EndTxn waits, or `prepared`, as their markers wait."""
        if state == "prepared":
            self._cluster.transactions.markers.hold(transactional_id)
        elif state == "ongoing":
            if not self._ends:
                self._broker.interceptors.append(self)
            self._ends.setdefault(transactional_id, [])
        else:
            raise ValueError(f"a transaction is held 'ongoing' or 'prepared', not {state!r}")

    def release(self, transactional_id: str) -> None:
        """Let what was held go on."""
        self._cluster.transactions.markers.release(transactional_id)
        for call, parked in self._let_go(transactional_id):
            call.go_on(parked)

    def _let_go(self, transactional_id: str) -> list[tuple[Call, Parked]]:
        held = self._ends.pop(transactional_id, [])
        if not self._ends and self in self._broker.interceptors:
            self._broker.interceptors.remove(self)
        return held

    def _forget(self) -> None:
        for transactional_id in list(self._ends):
            for call, parked in self._let_go(transactional_id):
                call.go_on(parked)

    def before(self, call: Call) -> Parked | None:
        if call.api_key != ApiKey.END_TXN:
            return None
        held = self._ends.get(getattr(call.request, "transactional_id", ""))
        if held is None:
            return None
        parked = Parked()
        held.append((call, parked))
        return parked
