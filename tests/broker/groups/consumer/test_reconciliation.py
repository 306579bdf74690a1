"""The table of a member's steps: what it keeps, gives up and is given, by its state and what it says that it has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import (
    ConsumerMember,
    MemberState,
    add_epoch_to_partitions,
    remove_epochs_from_partitions,
)
from minibroker.broker.groups.consumer.reconciliation import ReconciliationState, reconcile_member
from minibroker.protocol.errors import ErrorCode, KafkaError

A, B = bytes(15) + b"a", bytes(15) + b"b"
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)
BOTH = frozenset({A, B})


def of(**topics: str) -> dict[bytes, frozenset[int]]:
    """Partitions by digits: `of(a="01")`."""
    ids = {"a": A, "b": B}
    return {ids[topic]: frozenset(map(int, digits)) for topic, digits in topics.items() if digits}


def member(
    state: MemberState = STABLE, epoch: int = 5, has: Partitions | None = None, **more: Partitions
) -> ConsumerMember:
    revoking = more.get("revoking", {})
    return ConsumerMember(
        "m",
        epoch=epoch,
        previous_epoch=epoch - 1,
        state=state,
        assigned=add_epoch_to_partitions(epoch, has or {}),
        pending_revocation=add_epoch_to_partitions(epoch, revoking),
    )


def step(
    before: ConsumerMember,
    target: Partitions,
    owned: Partitions | None,
    *,
    epoch: int = 6,
    topics: frozenset[bytes] = BOTH,
    changed: bool = False,
    taken: Partitions | None = None,
) -> tuple[MemberState, int, int, dict[bytes, frozenset[int]], dict[bytes, frozenset[int]]]:
    """State, epoch, previous epoch, partitions and those to give up after one step."""

    def is_taken(topic_id: bytes, partition: int) -> bool:
        return partition in (taken or {}).get(topic_id, frozenset())

    after = reconcile_member(before, ReconciliationState(epoch, target, owned, topics, changed, is_taken))
    assigned, revoking = (
        dict(remove_epochs_from_partitions(after.assigned)),
        dict(remove_epochs_from_partitions(after.pending_revocation)),
    )
    return after.state, after.epoch, after.previous_epoch, assigned, revoking


def test_unowned_partitions_are_assigned_immediately() -> None:
    assert step(member(), of(a="01", b="2"), {}) == (STABLE, 6, 5, of(a="01", b="2"), {})


def test_a_member_waits_for_target_partitions_that_others_own() -> None:
    assert step(member(), of(a="01"), {}, taken=of(a="1")) == (UNRELEASED, 6, 5, of(a="0"), {})
    assert step(member(), of(a="01"), {}, taken=of(a="01")) == (UNRELEASED, 6, 5, {}, {})
    waiting = member(UNRELEASED, 6, of(a="0"))
    assert step(waiting, of(a="01"), of(a="0"), taken=of(a="01")) == (UNRELEASED, 6, 6, of(a="0"), {})
    assert step(waiting, of(a="01"), of(a="0"), taken=of(a="0")) == (STABLE, 6, 6, of(a="01"), {})


def test_partitions_are_revoked_before_any_is_assigned() -> None:
    before = member(has=of(a="012"))
    assert step(before, of(a="0", b="0"), of(a="012")) == (UNREVOKED, 5, 5, of(a="0"), of(a="12"))
    assert step(before, of(a="0", b="0"), None) == (UNREVOKED, 5, 5, of(a="0"), of(a="12"))
    assert step(before, of(a="0", b="0"), of(a="0")) == (STABLE, 6, 5, of(a="0", b="0"), {})


def test_new_partitions_are_not_assigned_before_the_revocation_completes() -> None:
    before = member(UNREVOKED, has=of(a="0"), revoking=of(a="12"))
    for owned in (None, of(a="012"), of(a="2"), of(a="0", b="1") | of(a="1")):
        assert step(before, of(a="0", b="0"), owned) == (UNREVOKED, 5, 4, of(a="0"), of(a="12"))
    assert step(before, of(a="0", b="0"), of(a="0")) == (STABLE, 6, 5, of(a="0", b="0"), {})
    assert step(before, of(a="0", b="0"), of(a="0"), taken=of(b="0")) == (UNRELEASED, 6, 5, of(a="0"), {})


def test_a_partition_being_revoked_may_be_assigned_to_the_same_member_again() -> None:
    before = member(UNREVOKED, has=of(a="0"), revoking=of(a="12"))
    assert step(before, of(a="01"), of(a="0"), taken=of(a="012")) == (STABLE, 6, 5, of(a="01"), {})


def test_a_target_that_changes_during_a_revocation_changes_what_is_revoked() -> None:
    before = member(UNREVOKED, has=of(a="01"), revoking=of(a="2"))
    assert step(before, of(a="0"), of(a="01"), epoch=7) == (UNREVOKED, 5, 5, of(a="0"), of(a="1"))


def test_partitions_of_an_unsubscribed_topic_are_revoked_without_a_new_epoch() -> None:
    before = member(has=of(a="01", b="0"))
    only_b = frozenset({B})
    unchanged = {"epoch": 5, "topics": only_b, "changed": True}
    assert step(before, of(a="01", b="0"), of(a="01", b="0"), **unchanged) == (UNREVOKED, 5, 5, of(b="0"), of(a="01"))  # type: ignore[arg-type]
    assert step(before, of(a="01", b="0"), of(b="0"), **unchanged) == (STABLE, 5, 5, of(b="0"), {})  # type: ignore[arg-type]
    assert step(before, of(a="01", b="0"), None, epoch=5, changed=True) == (STABLE, 5, 4, of(a="01", b="0"), {})
    giving_up = member(UNREVOKED, has=of(a="0", b="0"), revoking=of(a="1"))
    assert step(giving_up, of(b="0"), of(a="01"), topics=only_b, changed=True) == (
        UNREVOKED,
        5,
        5,
        of(b="0"),
        of(a="01"),
    )


def test_target_partitions_of_an_unsubscribed_topic_are_not_assigned() -> None:
    assert step(member(), of(a="0", b="0"), {}, topics=frozenset({B})) == (STABLE, 6, 5, of(b="0"), {})


def test_a_member_with_its_full_target_assignment_is_unchanged() -> None:
    before = member(has=of(a="0"))
    assert reconcile_member(before, ReconciliationState(5, of(a="1"), None, BOTH, False, lambda *_: False)) is before


def test_partitions_keep_the_epoch_in_which_they_were_assigned() -> None:
    after = reconcile_member(
        member(has=of(a="0")), ReconciliationState(6, of(a="01"), of(a="0"), BOTH, False, lambda *_: False)
    )
    assert after.assigned == {A: {0: 5, 1: 6}}
    assert (
        after.get_owned_since_epoch(A, 0),
        after.get_owned_since_epoch(A, 1),
        after.get_owned_since_epoch(B, 0),
    ) == (5, 6, None)


def test_a_member_in_an_unknown_state_must_rejoin() -> None:
    before = member(MemberState.UNKNOWN, has=of(a="0"))
    for owned in (None, of(a="0")):
        with pytest.raises(KafkaError) as caught:
            step(before, of(a="0"), owned)
        assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    assert step(before, of(a="0"), {})[0] is STABLE


PARTITIONS = st.frozensets(st.integers(0, 5)).map(lambda each: {A: each} if each else {})


@given(PARTITIONS, PARTITIONS, PARTITIONS)
def test_a_member_that_revokes_as_told_reaches_its_target_assignment_in_two_steps(
    has: Partitions, target: Partitions, others: Partitions
) -> None:
    """The first step names what to give up. In the second the member has, and gets what nobody else has."""
    taken = {A: others.get(A, frozenset()) - has.get(A, frozenset())}

    def is_taken(topic_id: bytes, partition: int) -> bool:
        return partition in taken[A]

    each = member(has=has)
    for _ in range(2):
        owned = remove_epochs_from_partitions(each.assigned)
        circumstances = ReconciliationState(6, target, owned if each.pending_revocation else has, BOTH, False, is_taken)
        each = reconcile_member(each, circumstances)
        if each.epoch == 6:
            break
    assert each.epoch == 6
    assert remove_epochs_from_partitions(each.assigned).get(A, frozenset()) == target.get(A, frozenset()) - taken[A]
    assert (each.state is STABLE) == (not target.get(A, frozenset()) & taken[A])
