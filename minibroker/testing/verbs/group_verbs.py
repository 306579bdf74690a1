"""The methods for groups and transactions: rebalances, evictions, fenced producers, held transactions.

They call what the coordinators call for the same event. What only a verb needs is imported when it is called: a start
should not wait for the coordinators.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

from minibroker.broker.delayed_operations import Promise
from minibroker.broker.requests.interceptors import Call, Interceptor
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.quantities import Duration
from minibroker.testing.embedded.pausing import wait_until_request_released
from minibroker.testing.faults.engine import Fault
from minibroker.testing.loops import immediate
from minibroker.testing.verbs.wait_verbs import WaitVerbs, get_committed_offset, list_member_ids, measure_lags

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.groups.classic.classic_group import ClassicGroup
    from minibroker.broker.groups.group import Group
    from minibroker.broker.groups.streams.streams_group import StreamsGroup
    from minibroker.broker.groups.streams.streams_member import StreamsMember
    from minibroker.broker.groups.streams.tasks import AnyTasks
    from minibroker.testing.embedded.embedded_broker import EmbeddedBroker


TasksById = dict[str, list[int]]  # partitions by the id of the subtopology
HeldState = Literal["ongoing", "prepared"]
REASON = "requested by a test"
JOINING: Final = ("JoinGroup", "ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat")


class StreamsMemberState(NamedTuple):
    """A member, and the tasks that it has been told to run, by role."""

    member: str
    instance: str | None
    client_id: str
    process: str
    epoch: int
    active: TasksById
    standby: TasksById
    warmup: TasksById


class StreamsGroupState(NamedTuple):
    """A group: `topology_epoch` is None before the first member, `source_topics` are those of all subtopologies."""

    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    source_topics: list[str]
    members: list[StreamsMemberState]


def make_group_state(group: StreamsGroup) -> StreamsGroupState:
    """Return the current state, epochs and members of a streams group."""
    topology = group.topology
    subtopologies = [] if topology is None else list(topology.subtopologies.values())
    return StreamsGroupState(
        group.state_name,
        group.epoch,
        group.assignment_epoch,
        None if topology is None else topology.epoch,
        sorted({topic for each in subtopologies for topic in each.source_topics}),
        [_make_member_state(each) for each in group.members.values()],
    )


def _make_member_state(member: StreamsMember) -> StreamsMemberState:
    assigned = member.assigned
    return StreamsMemberState(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.process_id,
        member.epoch,
        _make_tasks_by_id(assigned.active),
        _make_tasks_by_id(assigned.standby),
        _make_tasks_by_id(assigned.warmup),
    )


def _make_tasks_by_id(tasks: AnyTasks) -> TasksById:
    return {subtopology_id: sorted(partitions) for subtopology_id, partitions in sorted(tasks.items())}


class GroupVerbs(WaitVerbs):
    """Groups and transactions. Each method raises KafkaError for one that does not exist."""

    @cached_property
    def _held_ends(self) -> HeldTransactionEnds:
        return HeldTransactionEnds(self)

    # --- groups -----------------------------------------------------------------------------------

    @immediate
    def force_rebalance(self, group: str) -> None:
        """Make all members join again; in a KIP-848 group, a share group or a streams group, begin a new epoch.

        Raises KafkaError(GROUP_ID_NOT_FOUND).
        """
        from minibroker.broker.groups.classic.classic_group import ClassicGroup
        from minibroker.broker.groups.consumer.consumer_group import ConsumerGroup
        from minibroker.broker.groups.consumer.updating import ConsumerGroupUpdate
        from minibroker.broker.groups.share.share_group import ShareGroup
        from minibroker.broker.groups.streams.streams_group import StreamsGroup

        present = _find_group(self.running.cluster, group)
        self.notify_event_listeners("group", f"force a rebalance of {group}")
        if isinstance(present, ClassicGroup):
            if not present.is_empty:
                present.begin_or_complete_rebalance(REASON)
        elif isinstance(present, ConsumerGroup):
            update = ConsumerGroupUpdate(present)
            update.begin_epoch_if_changed(members_changed=True)
            update.append_changes()
        elif isinstance(present, ShareGroup | StreamsGroup):
            present.begin_group_epoch()

    @immediate
    def evict(self, group: str, member: str | None = None) -> list[str]:
        """Remove a member from its group, or all members, as if their sessions had expired; return their ids.

        Records that members of a share group have acquired stay so, until their locks end.
        Raises KafkaError(GROUP_ID_NOT_FOUND), KafkaError(UNKNOWN_MEMBER_ID).
        """
        from minibroker.broker.groups.classic.classic_group import ClassicGroup
        from minibroker.broker.groups.reconciling_group import HeartbeatGroup

        present = _find_group(self.running.cluster, group)
        gone = [each for each in list_member_ids(present) if member in (None, each)]
        _check_member_was_found(gone, group, member)
        self.notify_event_listeners("group", f"evict {', '.join(gone)} from {group}")
        if isinstance(present, ClassicGroup):
            _evict_members_of_classic_group(present, gone)
        elif gone and isinstance(present, HeartbeatGroup):
            present.remove_members([present.members[each] for each in gone])
        return gone

    @immediate
    def committed(self, group: str) -> dict[str, dict[int, int]]:
        """Return the offsets that a group has committed, by topic and partition: {"orders": {0: 3}}.

        Raises KafkaError(GROUP_ID_NOT_FOUND), and ValueError for a share group, which commits no offsets.
        """
        cluster = self.running.cluster
        _find_group(cluster, group)
        offsets_of = {
            topic.name: {
                each.index: offset
                for each in topic.partitions
                if (offset := get_committed_offset(cluster, group, topic.name, each.index)) is not None
            }
            for topic in cluster.image.topics.values()
        }
        return {topic: offsets for topic, offsets in sorted(offsets_of.items()) if offsets}

    @immediate
    def lag(self, group: str, topic: str) -> dict[int, int]:
        """Return how many offsets a group is behind the end of each partition of a topic: {0: 2, 1: 0}.

        Where it has committed nothing, it is behind by all that the partition has. Of a share group, it is what it has
        not acknowledged or archived. Raises KafkaError(GROUP_ID_NOT_FOUND), KafkaError(UNKNOWN_TOPIC_OR_PARTITION).
        """
        cluster = self.running.cluster
        _find_group(cluster, group)
        behind = measure_lags(cluster, group, topic)
        if behind is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return {each.index: behind.get(each.index, 0) for each in cluster.image.topics[topic].partitions}

    def slow_joins(self, group: str, delay: Duration) -> Fault:
        """Delay each JoinGroup of a group, and each heartbeat that joins it, until the fault is removed.

        Raises FaultError.
        """
        return self.faults.add(api=JOINING, group=group, where=_is_join_request, delay=delay)

    @immediate
    def streams_group(self, group: str) -> StreamsGroupState:
        """Return a group of Kafka Streams (KIP-1071): its state and epochs, and its members with their tasks.

        Raises KafkaError(GROUP_ID_NOT_FOUND), also for a group of another type.
        """
        return make_group_state(self.running.cluster.groups.get_streams_group(group))

    # --- transactions -----------------------------------------------------------------------------

    @immediate
    def fence(self, transactional_id: str) -> None:
        """Fence the producer that has this transactional id, and abort its ongoing transaction.

        Raises KafkaError(INVALID_PRODUCER_ID_MAPPING).
        """
        from minibroker.broker.transactions.transaction import TransactionState

        coordinator = self.running.cluster.transactions
        transaction = coordinator.get_transaction(transactional_id)
        self.notify_event_listeners("transaction", f"fence {transactional_id}")
        if transaction.state is not TransactionState.ONGOING:
            coordinator.initialize_producer(transactional_id, transaction.timeout_ms)
            return
        if not transaction.has_exhausted_epochs:
            # The abort takes the next epoch. A producer with the previous one may abort, too, and continue (KIP-890).
            transaction = transaction.copy()
            transaction.producer_epoch += 1
        coordinator.abort_and_fence_producer(transaction)
        self.running.cluster.turn.end()  # its markers follow at once, before the test looks

    @immediate
    def transaction_state(self, transactional_id: str) -> str:
        """Return the state of its transaction as DescribeTransactions names it: Empty, Ongoing, PrepareCommit, ...

        Raises KafkaError(INVALID_PRODUCER_ID_MAPPING).
        """
        return self.running.cluster.transactions.get_transaction(transactional_id).state.api_name

    @immediate
    def hold(self, transactional_id: str, state: HeldState = "prepared") -> None:
        """Keep transactions of this id in a state until `release`.

        `prepared`: decided, without markers, so that `read_committed` consumers wait, and a new producer gets
        CONCURRENT_TRANSACTIONS. `ongoing`: EndTxn is not answered. Raises ValueError for another state.
        """
        if state == "prepared":
            self.running.cluster.transactions.markers.hold_back_markers(transactional_id)
        elif state == "ongoing":
            self._held_ends.hold_end_of_transaction(transactional_id)
        else:
            raise ValueError(f"a transaction is held 'ongoing' or 'prepared', not {state!r}")
        self.notify_event_listeners("transaction", f"hold {transactional_id} {state}")

    @immediate
    def release(self, transactional_id: str) -> None:
        """Release the transactions of this id."""
        self.running.cluster.transactions.markers.send_held_markers(transactional_id)
        self._held_ends.release_end_of_transaction(transactional_id)
        self.notify_event_listeners("transaction", f"release {transactional_id}")


class HeldTransactionEnds(Interceptor):
    """Holds EndTxn requests back. It is among the interceptors only while there is an id to hold."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._interceptors = broker.interceptors
        self._held: dict[str, list[Promise[None]]] = {}
        broker.reset_callbacks.append(self._release_all)

    def hold_end_of_transaction(self, transactional_id: str) -> None:
        """Hold each EndTxn of this id from now on."""
        if not self._held:
            self._interceptors.append(self)
        self._held.setdefault(transactional_id, [])

    def release_end_of_transaction(self, transactional_id: str) -> None:
        """Run the requests of this id that were held, and hold no more."""
        held = self._held.pop(transactional_id, [])
        if not self._held and self in self._interceptors:
            self._interceptors.remove(self)
        for released in held:
            released.resolve(None)

    def _release_all(self) -> None:
        for transactional_id in list(self._held):
            self.release_end_of_transaction(transactional_id)

    def before_request(self, call: Call) -> Coroutine[Any, Any, None] | None:
        """Hold an EndTxn of a transactional id that is held."""
        if call.api_key != ApiKey.END_TXN:
            return None
        held = self._held.get(getattr(call.request, "transactional_id", ""))
        return None if held is None else wait_until_request_released(held)


def _find_group(cluster: Broker, group: str) -> Group:
    found = cluster.groups.groups.get(group)
    if found is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
    return found


def _evict_members_of_classic_group(group: ClassicGroup, members: Sequence[str]) -> None:
    for each in members:
        group.remove_member(each)
    group.rebalance_after_removal(REASON)


def _check_member_was_found(members: Sequence[object], group: str, member: str | None) -> None:
    """Raise KafkaError(UNKNOWN_MEMBER_ID) if a member was given, and `members` are none."""
    if member is not None and not members:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group!r} has no member {member!r}")


def _is_join_request(request: object) -> bool:
    """Return whether a request makes a member join: a JoinGroup, or a heartbeat with epoch 0."""
    return getattr(request, "member_epoch", 0) == 0
