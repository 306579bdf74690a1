"""How a member gets from its partitions to its target: first it revokes some, then it is assigned others.

`NEXT` says what happens on a heartbeat, by the member's state. No partition is assigned to a member before its last
owner has reported that it revoked it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember, MemberState, PartitionEpochs
from minibroker.protocol.errors import ErrorCode, KafkaError


class ReconciliationState(NamedTuple):
    """What a member's next step depends on.

    `owned` is what its heartbeat reports to own, None if it reports nothing. `topic_ids` are the existing topics of its
    subscription. `is_taken` says whether any member has a partition, or has still to revoke it.
    """

    target_epoch: int
    target: Partitions
    owned: Partitions | None
    topic_ids: frozenset[bytes]
    subscription_changed: bool
    is_taken: Callable[[bytes, int], bool]

    def may_still_own(self, revoked_partitions: PartitionEpochs) -> bool:
        """Return whether the member may still own some of these: without a report it may own all."""
        if self.owned is None:
            return True
        return any(
            not partitions.isdisjoint(revoked_partitions.get(topic_id, {}))
            for topic_id, partitions in self.owned.items()
        )


def reconcile_member(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Return the member with the epoch and partitions that it may have now on the way to its target, or unchanged.

    Raises KafkaError(FENCED_MEMBER_EPOCH) for a member in an unknown state, so that it joins anew.
    """
    if member.is_reconciled_to(reconciliation.target_epoch) and not reconciliation.subscription_changed:
        return member
    return NEXT[member.state](member, reconciliation)


def _reconcile_stable_member(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Return the member on the way to a new target, or without the topics that it no longer subscribes to."""
    if member.epoch != reconciliation.target_epoch:
        return _move_member_toward_target(member, reconciliation)
    return _revoke_unsubscribed_topics(member, reconciliation)


def _reconcile_revoking_member(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Return the member on the way to its target, if it owns nothing any more that it must revoke."""
    if not reconciliation.may_still_own(member.pending_revocation):
        return _move_member_toward_target(member, reconciliation)
    return _revoke_unsubscribed_topics(member, reconciliation) if reconciliation.subscription_changed else member


def _reconcile_member_in_unknown_state(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Return the member on the way to its target, if it owns nothing. Raises KafkaError(FENCED_MEMBER_EPOCH)."""
    if reconciliation.owned is None or reconciliation.owned:
        message = "The consumer group member is in a unknown state. "
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH, f"{message}The member must abandon all its partitions and rejoin."
        )
    return _move_member_toward_target(member._replace(epoch=reconciliation.target_epoch), reconciliation)


def _revoke_unsubscribed_topics(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Revoke at once what the member no longer subscribes to; the target may only change later."""
    assigned, revoked = {}, {topic_id: dict(epochs) for topic_id, epochs in member.pending_revocation.items()}
    for topic_id, epochs in member.assigned.items():
        if topic_id in reconciliation.topic_ids:
            assigned[topic_id] = epochs
        else:
            revoked.setdefault(topic_id, {}).update(epochs)
    if len(assigned) == len(member.assigned):
        return member
    if reconciliation.may_still_own(revoked):
        return member.with_epoch_and_assignment(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoked)
    return member.with_epoch_and_assignment(member.epoch, member.state, assigned, member.pending_revocation)


def _move_member_toward_target(member: ConsumerMember, reconciliation: ReconciliationState) -> ConsumerMember:
    """Return the member without partitions to revoke, or if none are left, with the free ones of its target."""
    kept: dict[bytes, dict[int, int]] = {}
    revoked: dict[bytes, dict[int, int]] = {}
    unreleased = False
    target_epoch, target = reconciliation.target_epoch, reconciliation.target
    for topic_id in [*member.assigned, *(each for each in target if each not in member.assigned)]:
        wanted = target.get(topic_id, frozenset()) if topic_id in reconciliation.topic_ids else frozenset()
        has = member.assigned.get(topic_id, {})
        mine = kept[topic_id] = {each: epoch for each, epoch in has.items() if each in wanted}
        if len(mine) < len(has):
            revoked[topic_id] = {each: epoch for each, epoch in has.items() if each not in wanted}
    if revoked and reconciliation.may_still_own(revoked):
        return member.with_epoch_and_assignment(
            member.epoch, MemberState.UNREVOKED_PARTITIONS, _drop_empty_topics(kept), revoked
        )
    for topic_id, mine in kept.items():
        if topic_id in reconciliation.topic_ids:
            for partition in sorted(target.get(topic_id, frozenset()) - mine.keys()):
                # If it had to revoke the partition itself, nobody else has it.
                own = partition in member.pending_revocation.get(topic_id, {})
                if own or not reconciliation.is_taken(topic_id, partition):
                    mine[partition] = target_epoch
                else:
                    unreleased = True
    state = MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE
    return member.with_epoch_and_assignment(target_epoch, state, _drop_empty_topics(kept), {})


def _drop_empty_topics(partitions: dict[bytes, dict[int, int]]) -> PartitionEpochs:
    return {topic_id: epochs for topic_id, epochs in partitions.items() if epochs}


NEXT: dict[MemberState, Callable[[ConsumerMember, ReconciliationState], ConsumerMember]] = {
    MemberState.STABLE: _reconcile_stable_member,
    MemberState.UNREVOKED_PARTITIONS: _reconcile_revoking_member,
    MemberState.UNRELEASED_PARTITIONS: _move_member_toward_target,
    MemberState.UNKNOWN: _reconcile_member_in_unknown_state,
}
