"""Groups that go over from the classic protocol to the new one and back, with their members, and mixed in between."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.consumer import classic_metadata
from minibroker.broker.groups.group import GroupType
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import JoinGroupResponse
from tests.broker.groups.classic.driving import GROUP, Driver, answered
from tests.broker.groups.classic.driving import SESSION_MS as CLASSIC_SESSION_MS
from tests.broker.groups.consumer.driving import Player, describe, group_of, owners
from tests.broker.harness import Harness

Partition = ConsumerProtocolSubscription.TopicPartition
TOPIC = "t"


def said(*topics: str, owned: set[tuple[str, int]] | None = None, version: int = 1) -> bytes:
    """A subscription as a consumer with the classic protocol sends it."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(owned or ()):
        by_topic.setdefault(topic, []).append(partition)
    message = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[Partition(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )
    return version.to_bytes(2, "big") + bytes(message.encode(version))


def given(*partitions: int, user_data: bytes | None = None) -> bytes:
    """An assignment as a leader sends it."""
    topics = [ConsumerProtocolAssignment.TopicPartition(topic=TOPIC, partitions=list(partitions))]
    return b"\0\1" + bytes(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data).encode(1))


class ClassicPlayer:
    """A cooperative consumer with the classic protocol: it joins again when asked to, and when it has given up."""

    def __init__(self, harness: Harness, *topics: str, instance: str | None = None) -> None:
        self.driver = Driver(harness)
        self.topics = topics or (TOPIC,)
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[tuple[str, int]] = set()

    def ask_join(self, **more: Any) -> Any:
        protocols = (("cooperative-sticky", said(*self.topics, owned=self.owned)),)
        return self.driver.ask_join(self.member_id, protocols=protocols, instance=self.instance, **more)

    def joined(self, answer: JoinGroupResponse) -> ErrorCode:
        """Take the answer to a JoinGroup, and ask for the assignment."""
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return self.joined(self.ask_join())
        assert answer.error_code == ErrorCode.NONE, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        synced = answered(self.driver.ask_sync(answer, instance=self.instance))
        if synced.error_code == ErrorCode.NONE:
            had, self.owned = self.owned, self._partitions(synced.assignment)
            if had - self.owned:
                return self.join()  # what it has given up, the next JoinGroup says
        return ErrorCode(synced.error_code)

    def join(self) -> ErrorCode:
        return self.joined(self.ask_join())

    def beat(self) -> ErrorCode:
        code = self.driver.heartbeat(self.member_id, self.generation, instance=self.instance)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned = set()
            self.join()
        return code

    @staticmethod
    def _partitions(data: bytes) -> set[tuple[str, int]]:
        assigned = classic_metadata.decode_assignment(data).assigned_partitions
        return {(each.topic, partition) for each in assigned for partition in each.partitions}


@pytest.fixture
def topic(harness: Harness) -> str:
    harness.create_topic(TOPIC, 4)
    return TOPIC


def everything() -> set[tuple[str, int]]:
    return {(TOPIC, partition) for partition in range(4)}


def classic_pair(harness: Harness) -> list[ClassicPlayer]:
    """Two members of a stable classic group, with two partitions each."""
    players = [ClassicPlayer(harness), ClassicPlayer(harness)]
    driver = players[0].driver
    waiting = []
    for player in players:
        player.member_id = player.ask_join().member_id
        waiting.append(player.ask_join())
    driver.turn()
    joins = [answered(each) for each in waiting]
    shares = {player.member_id: given(2 * n, 2 * n + 1) for n, player in enumerate(players)}
    leader = joins[0].leader
    syncs = {
        player.member_id: driver.ask_sync(join, shares if player.member_id == leader else None)
        for player, join in sorted(zip(players, joins, strict=True), key=lambda each: each[0].member_id == leader)
    }
    for player, join in zip(players, joins, strict=True):
        player.generation = join.generation_id
        player.owned = player._partitions(answered(syncs[player.member_id]).assignment)
    assert owners(players).keys() == everything()  # type: ignore[arg-type]
    return players


def quiet(*players: Player | ClassicPlayer, rounds: int = 8) -> None:
    """Send heartbeats of all until the group is stable."""
    for _ in range(rounds):
        for player in players:
            player.beat()
        owners(players)  # type: ignore[arg-type]


# --- to the new protocol ----------------------------------------------------------------------------


def test_the_first_member_of_the_new_protocol_converts_a_classic_group(harness: Harness, topic: str) -> None:
    first, second = classic_pair(harness)
    generation = first.generation
    third = Player(harness, "new", topic)
    answer = third.join()
    assert (answer.error_code, answer.member_epoch) == (ErrorCode.NONE, generation + 1)
    assert third.owned == set()
    described = describe(harness)
    assert {member.member_id: member.member_type for member in described.members} == {
        first.member_id: 0,
        second.member_id: 0,
        "new": 1,
    }
    assert first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    quiet(first, second, third)
    assert owners([first, second, third]).keys() == everything()  # type: ignore[list-item]
    assert sorted(len(player.owned) for player in (first, second, third)) == [1, 1, 2]
    assert describe(harness).group_state == "Stable"
    assert first.beat() == ErrorCode.NONE


def test_offsets_survive_the_conversion_of_a_group(harness: Harness, topic: str) -> None:
    classic_pair(harness)
    offsets = harness.cluster.groups.groups[GROUP].offsets
    Player(harness, "new", topic).join()
    assert group_of(harness).offsets is offsets


def test_a_mixed_group_continues_after_a_restart(harness: Harness, topic: str) -> None:
    first, second = classic_pair(harness)
    third = Player(harness, "new", topic)
    third.join()
    quiet(first, second, third)
    before, had = describe(harness), owners([first, second, third])  # type: ignore[list-item]
    harness.restart(crash=True)
    assert describe(harness) == before
    assert (first.beat(), second.beat()) == (ErrorCode.NONE, ErrorCode.NONE)
    third.beat()
    assert owners([first, second, third]) == had  # type: ignore[list-item]


def test_waiting_members_must_rejoin_when_the_group_is_converted(harness: Harness, topic: str) -> None:
    first, second = classic_pair(harness)
    third = ClassicPlayer(harness)
    third.member_id = third.ask_join().member_id
    waiting = third.ask_join()
    Player(harness, "new", topic).join()
    assert answered(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert third.join() == ErrorCode.NONE


@pytest.mark.parametrize("empty", ["with offsets", "without"])
def test_an_empty_classic_group_is_replaced_by_a_consumer_group(harness: Harness, topic: str, empty: str) -> None:
    harness.restart(settings={"group.consumer.migration.policy": "disabled"})
    if empty == "with offsets":
        harness.coordinator(GROUP)
        harness.cluster.groups.find_or_make_classic_group(GROUP)
    else:
        (left,) = [ClassicPlayer(harness)]
        waiting = left.driver.new_member()
        left.driver.turn()
        left.driver.leave(waiting[0])
        left.driver.turn()
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC
    assert Player(harness, "new", topic).join().error_code == ErrorCode.NONE
    assert describe(harness).group_state == "Stable"
    harness.restart()
    assert describe(harness).group_state == "Stable"


@pytest.mark.parametrize("policy", ["disabled", "downgrade", "DISABLED"])
def test_a_group_stays_classic_if_the_migration_policy_forbids_an_upgrade(
    harness: Harness, topic: str, policy: str
) -> None:
    harness.restart(settings={"group.consumer.migration.policy": policy})
    first, second = classic_pair(harness)
    answer = Player(harness, "new", topic).join()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        f"Cannot upgrade classic group {GROUP} to consumer group because online upgrade is disabled."
    )
    assert (first.beat(), second.beat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_classic_member_may_not_join_a_consumer_group_without_a_migration(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.migration.policy": "disabled"})
    Player(harness, "new", topic).join()
    answer = ClassicPlayer(harness).ask_join()
    assert (answer.error_code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")


# --- back -------------------------------------------------------------------------------------------


def test_a_group_is_downgraded_when_the_last_consumer_protocol_member_leaves(harness: Harness, topic: str) -> None:
    first, second = classic_pair(harness)
    third = Player(harness, "new", topic)
    third.join()
    quiet(first, second, third)
    epoch = describe(harness).group_epoch
    third.leave()
    group = harness.cluster.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (group.generation, group.state_name) == (epoch, "PreparingRebalance")
    assert first.driver.heartbeat(first.member_id, first.generation) == ErrorCode.REBALANCE_IN_PROGRESS
    harness.restart(crash=True)
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC
    assert set(harness.cluster.groups.get_classic_group(GROUP).members) == {first.member_id, second.member_id}


def test_a_group_is_downgraded_when_the_last_consumer_protocol_member_expires(harness: Harness, topic: str) -> None:
    first, second = classic_pair(harness)
    third = Player(harness, "new", topic)
    third.join()
    quiet(first, second, third)
    for _ in range(9):
        harness.clock.advance(5000)
        first.driver.heartbeat(first.member_id, first.generation)
        second.driver.heartbeat(second.member_id, second.generation)
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC


def test_a_group_that_may_not_be_downgraded_stays_a_consumer_group(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.migration.policy": "upgrade"})
    first, second = classic_pair(harness)
    third = Player(harness, "new", topic)
    third.join()
    quiet(first, second, third)
    third.leave()
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CONSUMER
    quiet(first, second)
    assert owners([first, second]).keys() == everything()  # type: ignore[list-item]


def test_classic_members_alone_get_a_target_assignment_after_the_assignment_interval(
    harness: Harness, topic: str
) -> None:
    policy = {"group.consumer.migration.policy": "upgrade", "group.consumer.assignment.interval.ms": "1000"}
    harness.restart(settings=policy)
    first, second = classic_pair(harness)
    third = Player(harness, "new", topic)
    third.join()
    quiet(first, second, third)
    third.leave()
    assert (first.beat(), second.beat()) == (ErrorCode.NONE, ErrorCode.NONE)
    harness.clock.advance(1000)
    assert first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    quiet(first, second)
    assert owners([first, second]).keys() == everything()  # type: ignore[list-item]


def test_a_static_member_that_rejoins_with_a_stale_target_triggers_a_rebalance(harness: Harness, topic: str) -> None:
    harness.restart(settings={"group.consumer.assignment.interval.ms": "1000"})
    static = Player(harness, "new", topic, instance="i")
    static.join()
    joined = ClassicPlayer(harness, topic, "another", instance="i").ask_join()
    assert (joined.error_code, joined.generation_id) == (ErrorCode.NONE, 0)
    group = harness.cluster.groups.get_classic_group(GROUP)
    assert (group.state_name, list(group.members)) == ("PreparingRebalance", [joined.member_id])


def test_a_last_static_member_that_rejoins_with_the_classic_protocol_downgrades_the_group(
    harness: Harness, topic: str
) -> None:
    static = Player(harness, "new", topic, instance="i")
    static.join()
    static.leave(-2)
    classic = ClassicPlayer(harness, instance="i")
    assert classic.join() == ErrorCode.NONE
    group = harness.cluster.groups.get_classic_group(GROUP)
    assert (group.state_name, group.static) == ("Stable", {"i": classic.member_id})
    assert classic.owned == everything()


def test_a_static_classic_member_rejoins_with_the_new_protocol(harness: Harness, topic: str) -> None:
    classic = ClassicPlayer(harness, instance="i")
    waiting = classic.ask_join()
    classic.driver.turn()
    joined = answered(waiting)
    classic.driver.ask_sync(joined, {joined.member_id: given(0, 1, 2, 3)}, instance="i")
    static = Player(harness, "new", topic, instance="i")
    static.join()
    assert static.owned == everything()
    assert [member.member_type for member in describe(harness).members] == [1]
    assert classic.driver.heartbeat(joined.member_id, joined.generation_id, instance="i") == (
        ErrorCode.FENCED_INSTANCE_ID
    )


# --- classic members in a consumer group ------------------------------------------------------------


@pytest.fixture
def mixed(harness: Harness, topic: str) -> tuple[Player, ClassicPlayer]:
    """A consumer group with a member of each protocol, stable."""
    new, classic = Player(harness, "new", topic), ClassicPlayer(harness)
    new.join()
    classic.join()
    quiet(new, classic)
    assert owners([new, classic]).keys() == everything()  # type: ignore[list-item]
    assert (len(new.owned), len(classic.owned)) == (2, 2)
    return new, classic


def test_a_classic_member_joins_a_consumer_group(harness: Harness, mixed: tuple[Player, ClassicPlayer]) -> None:
    new, classic = mixed
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CONSUMER
    assert classic.beat() == ErrorCode.NONE
    new.leave()  # the group goes back: only a classic member is left
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC


def test_a_classic_member_of_a_consumer_group_must_send_its_generation_and_protocol(
    harness: Harness, mixed: tuple[Player, ClassicPlayer]
) -> None:
    new, classic = mixed
    driver = classic.driver
    assert driver.heartbeat(classic.member_id, classic.generation - 1) == ErrorCode.ILLEGAL_GENERATION
    assert driver.heartbeat("new", new.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(classic.member_id, classic.generation, instance="i") == ErrorCode.UNKNOWN_MEMBER_ID
    joined = JoinGroupResponse(
        member_id=classic.member_id,
        generation_id=classic.generation,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
    )
    assert driver.ask_sync(joined).error_code == ErrorCode.NONE
    assert driver.ask_sync(joined, protocol_name="range").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.ask_sync(joined, protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.ask_sync(joined, generation_id=1).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize(
    "join",
    [
        {"kind": "connect"},
        {"protocols": ()},
        {"protocols": (("range", said(TOPIC)),)},
        {"protocols": (("cooperative-sticky", b"\0"),)},
    ],
)
def test_a_classic_join_with_an_incompatible_protocol_is_rejected(
    harness: Harness, mixed: tuple[Player, ClassicPlayer], join: dict[str, Any]
) -> None:
    answer = mixed[1].driver.ask_join("another", **join)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_silent_classic_member_is_removed_after_its_own_session_timeout(
    harness: Harness, mixed: tuple[Player, ClassicPlayer]
) -> None:
    new, classic = mixed
    harness.clock.advance(CLASSIC_SESSION_MS - 1)
    assert len(group_of(harness).members) == 2
    harness.clock.advance(1)
    assert list(group_of(harness).members) == ["new"]
    quiet(new)
    assert new.owned == everything()
    assert classic.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_rejoin_is_removed(
    harness: Harness, mixed: tuple[Player, ClassicPlayer]
) -> None:
    new, classic = mixed
    third = Player(harness, "third", TOPIC)
    third.join()
    for _ in range(13):
        assert classic.driver.heartbeat(classic.member_id, classic.generation) in (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        new.beat()
        third.beat()
        harness.clock.advance(5000)
    assert set(group_of(harness).members) == {"new", "third"}
    quiet(new, third)
    assert owners([new, third]).keys() == everything()


def test_leave_group_removes_members_of_either_protocol(harness: Harness, mixed: tuple[Player, ClassicPlayer]) -> None:
    new, classic = mixed
    static = Player(harness, "s", TOPIC, instance="i")
    static.join()
    answers = classic.driver.leave("nobody", ("", "i"), ("x", "i"), ("", "j"), classic.member_id)
    assert [each.error_code for each in answers.members] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert list(group_of(harness).members) == ["new"]
    quiet(new)
    assert new.owned == everything()


def test_an_empty_consumer_group_becomes_classic_when_a_classic_member_joins(harness: Harness, topic: str) -> None:
    player = Player(harness, "new", topic)
    player.join()
    player.leave()
    classic = ClassicPlayer(harness)
    classic.member_id = classic.ask_join().member_id
    waiting = classic.ask_join()
    classic.driver.turn()
    assert answered(waiting).error_code == ErrorCode.NONE
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC
    harness.restart()
    assert harness.cluster.groups.groups[GROUP].type is GroupType.CLASSIC
