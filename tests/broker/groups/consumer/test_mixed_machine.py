"""Members of both protocols that come, go, crash and stall at random, and a broker that restarts at random.

The group goes over to the new protocol with the first member that speaks it, and back with the last. Whatever happens,
nobody works on a partition that another one works on, and once all is quiet everything is worked on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minibroker.broker.groups.consumer import classic_metadata
from minibroker.broker.groups.group import GroupType
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.broker.groups.classic.consumers import SESSION_MS as CLASSIC_SESSION_MS
from tests.broker.groups.classic.consumers import TOPIC, Consumer, Fenced
from tests.broker.groups.classic.driving import GROUP, Driver
from tests.broker.groups.consumer.driving import SESSION_MS, Player
from tests.broker.harness import Harness, Waiting

PARTITIONS = 4
ROUND_MS = 500
ROUNDS = 2 * SESSION_MS // ROUND_MS
NEW, OLD = st.integers(0, 1), st.integers(2, 4)


class Eager(Consumer):
    """A consumer with the classic protocol, that gives up all that it has before it joins again."""

    silent_ms = 0

    def _sync(self) -> None:
        joined = self._joined
        members = [member.member_id for member in joined.members]
        assignments = {
            member_id: given(*range(number, PARTITIONS, len(members))) for number, member_id in enumerate(members)
        }
        self._waiting = self._driver.ask_sync(joined, assignments, instance=self.instance)
        if not isinstance(self._waiting, Waiting):
            answer, self._waiting = self._waiting, None
            self._answered(answer)

    def _answered(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE and self._joined is not None:
            assigned = classic_metadata.decode_assignment(answer.assignment).assigned_partitions
            self._joined, self.owned = None, [index for each in assigned for index in each.partitions]
        else:
            super()._answered(answer)


def given(*partitions: int) -> bytes:
    topics = [ConsumerProtocolAssignment.TopicPartition(topic=TOPIC, partitions=list(partitions))]
    return b"\0\0" + bytes(ConsumerProtocolAssignment(assigned_partitions=topics).encode(0))


class MixedGroup(RuleBasedStateMachine):
    """Two places for members of the new protocol, three for classic ones."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.harness = Harness(Path(self.directory.name), settings={"offsets.topic.num.partitions": "1"})
        self.harness.create_topic(TOPIC, PARTITIONS)
        self.driver = Driver(self.harness)
        self.new: dict[int, Player] = {}
        self.old: dict[int, Eager] = {}
        self.silent_ms: dict[int, int] = {}
        self.lives = 0
        self.kinds: set[GroupType] = set()

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.harness.logs.close_without_checkpoints()
            self.directory.cleanup()

    # --- what happens ---------------------------------------------------------------------------

    @initialize(old=st.sets(OLD), new=st.sets(NEW, max_size=1))
    def some_are_there(self, old: set[int], new: set[int]) -> None:
        for place in old:
            self.an_old_one_comes(place)
        self.all_go_on(6)
        for place in new:
            self.a_new_one_comes(place)

    @rule(place=NEW)
    def a_new_one_comes(self, place: int) -> None:
        if place in self.new:
            return
        self.lives += 1
        player = Player(self.harness, f"new{self.lives}", TOPIC)
        if player.join().error_code == ErrorCode.NONE:
            self.new[place], self.silent_ms[place] = player, 0

    @rule(place=OLD)
    def an_old_one_comes(self, place: int) -> None:
        if place not in self.old:
            self.old[place], self.silent_ms[place] = Eager(self.driver, None, 9), 0

    @rule(place=st.integers(0, 4))
    def one_steps(self, place: int) -> None:
        if place in self.new:
            self.step_new(place)
        elif place in self.old:
            self.step_old(place)

    def step_new(self, place: int) -> None:
        player = self.new[place]
        code = player.ask(topic_partitions=player.reported())
        if code.error_code == ErrorCode.NONE:
            player._take(code)
            self.silent_ms[place] = 0
        else:
            del self.new[place]

    def step_old(self, place: int) -> None:
        try:
            self.old[place].step()
            self.silent_ms[place] = 0
        except Fenced:
            del self.old[place]

    @rule(rounds=st.integers(1, 12))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for place in list(self.new):
                self.step_new(place)
            for place in list(self.old):
                self.step_old(place)
            self.passes(ROUND_MS)

    @rule(place=st.integers(0, 4))
    def one_leaves(self, place: int) -> None:
        if place in self.new:
            self.new.pop(place).leave()
        elif place in self.old:
            self.old.pop(place).leave()

    @rule(place=st.integers(0, 4))
    def one_crashes(self, place: int) -> None:
        self.new.pop(place, None)
        if place in self.old:
            self.old.pop(place).vanish()

    @rule(by_ms=st.sampled_from([0, 400, 2500, 5000, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        self.passes(by_ms)

    def passes(self, by_ms: int) -> None:
        """Let time pass without heartbeats. A member that is silent for a session has lost its partitions by then."""
        for place in [*self.new, *self.old]:
            self.silent_ms[place] += by_ms
            if place in self.new and self.silent_ms[place] >= SESSION_MS:
                del self.new[place]
            elif place in self.old and self.silent_ms[place] >= CLASSIC_SESSION_MS:
                self.old.pop(place).vanish()
        self.harness.clock.advance(by_ms)

    @rule(crash=st.booleans())
    def the_broker_restarts(self, crash: bool) -> None:
        kind = self.kind()
        self.harness.restart(crash=crash)
        for consumer in self.old.values():
            consumer.disconnected()
        if kind is GroupType.CONSUMER:
            assert self.kind() is kind

    def kind(self) -> GroupType | None:
        group = self.harness.cluster.groups.groups.get(GROUP)
        return None if group is None else group.type

    # --- what holds -----------------------------------------------------------------------------

    @invariant()
    def nobody_works_on_what_another_works_on(self) -> None:
        owned = [partition for player in self.new.values() for _, partition in player.owned]
        owned += [partition for consumer in self.old.values() for partition in consumer.owned or ()]
        assert len(owned) == len(set(owned)), owned

    def settle(self) -> None:
        """Nothing happens but that those who are left go on: they all find together."""
        self.all_go_on(ROUNDS)
        group = self.harness.cluster.groups.groups.get(GROUP)
        if not self.new and not self.old:
            assert group is None or group.state_name == "Empty"
            return
        assert group is not None
        assert group.state_name == "Stable"
        owned = [partition for player in self.new.values() for _, partition in player.owned]
        owned += [partition for consumer in self.old.values() for partition in consumer.owned or ()]
        assert sorted(owned) == list(range(PARTITIONS))
        assert group.type is (GroupType.CONSUMER if self.new else GroupType.CLASSIC)


TestMixedGroup = MixedGroup.TestCase
TestMixedGroup.settings = settings(stateful_step_count=25)
