"""Random members, topics, silences and restarts: nobody ever works on a partition that another one works on.

The members are as slow as clients may be: one that is told to give partitions up works on them until it says that it
does not any more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from minibroker.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from tests.broker.groups.consumer.driving import (
    BEAT_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    describe,
    group_of,
    owners,
)
from tests.broker.harness import Harness

MEMBERS = st.integers(0, 4)
TOPICS = ("t1", "t2", "u1")
SUBSCRIPTIONS = st.one_of(
    st.tuples(st.lists(st.sampled_from(TOPICS), unique=True), st.just("")),
    st.tuples(st.just([]), st.sampled_from(["t.", ".*1", "u1|t2"])),
)


class SlowPlayer(Player):
    """A member that works on what it is to give up until `give_up`.

    `silent_ms` is how long it has had no answer, `late_ms` how long it has been told to give something up. As clients
    do, it stops working when that is as long as a session, or as its rebalance timeout.
    """

    silent_ms = 0
    late_ms = 0

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        worked_on = self.owned
        super()._take(answer)
        self.owned = worked_on | self.owned
        self.silent_ms = 0

    def give_up(self) -> None:
        """Stop working on what it does not have any more; its next heartbeat says so."""
        self.owned = set(self.assigned)
        self.late_ms = 0

    def wait(self, by_ms: int) -> bool:
        """Time passes; whether it still works."""
        self.silent_ms += by_ms
        self.late_ms += by_ms if self.owned != self.assigned else 0
        return self.silent_ms < SESSION_MS and self.late_ms < REBALANCE_MS


class ConsumerGroups(RuleBasedStateMachine):
    """Five places for members, two of them static, in one group."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.harness = Harness(Path(self.directory.name), settings={"offsets.topic.num.partitions": "1"})
        self.players: dict[int, SlowPlayer] = {}
        self.lives = 0
        self.highest_epoch = 0
        self.harness.coordinator(GROUP)

    def teardown(self) -> None:
        self.harness.logs.close_without_checkpoints()
        self.directory.cleanup()

    @initialize()
    def begin(self) -> None:
        self.harness.create_topic("t1", 3)

    # --- members ----------------------------------------------------------------------------------

    @rule(place=MEMBERS, subscription=SUBSCRIPTIONS)
    def join(self, place: int, subscription: tuple[list[str], str]) -> None:
        if place in self.players:
            return
        self.lives += 1
        names, regex = subscription
        instance = f"i{place}" if place < 2 else None
        said = {"subscribed_topic_names": names, "subscribed_topic_regex": regex}
        player = SlowPlayer(self.harness, f"m{place}-{self.lives}", instance=instance, **said)
        answer = player.join()
        if answer.error_code == ErrorCode.NONE:
            self.players[place] = player
        else:
            assert answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    @rule(place=MEMBERS)
    def beat(self, place: int) -> None:
        if place in self.players:
            self._beat(place)

    def _beat(self, place: int) -> None:
        player = self.players[place]
        answer = player.ask(topic_partitions=player.reported())
        if answer.error_code == ErrorCode.NONE:
            player._take(answer)
        else:
            assert answer.error_code in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            del self.players[place]

    @rule(place=MEMBERS)
    def give_up(self, place: int) -> None:
        if place in self.players:
            self.players[place].give_up()

    @rule(place=MEMBERS, subscription=SUBSCRIPTIONS)
    def subscribe(self, place: int, subscription: tuple[list[str], str]) -> None:
        if place not in self.players:
            return
        player = self.players[place]
        player.said = {"subscribed_topic_names": subscription[0], "subscribed_topic_regex": subscription[1]}
        answer = player.ask(topic_partitions=player.reported(), **player.said)
        if answer.error_code == ErrorCode.NONE:
            player._take(answer)
        else:
            del self.players[place]

    @rule(place=MEMBERS, for_a_while=st.booleans())
    def leave(self, place: int, for_a_while: bool) -> None:
        if place in self.players:
            self.players.pop(place).leave(-2 if for_a_while and place < 2 else -1)

    @rule(place=MEMBERS)
    def crash(self, place: int) -> None:
        """The client's process is gone, and its work with it; the broker hears nothing of that."""
        self.players.pop(place, None)

    # --- topics and time ----------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def make_or_grow(self, topic: str, count: int) -> None:
        known = self.harness.cluster.image.topics.get(topic)
        if known is None:
            self.harness.create_topic(topic, count)
        elif len(known.partitions) < count:
            grown = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
            self.harness.request(CreatePartitionsRequest(topics=[grown]))

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        """Delete a topic. Members that work on it notice by themselves: its partitions are nobody's."""
        state = DeleteTopicsRequest.DeleteTopicState(name=topic)
        self.harness.request(DeleteTopicsRequest(topics=[state]))
        for player in self.players.values():
            player.owned = {each for each in player.owned if each[0] != topic}
            player.assigned = {each for each in player.assigned if each[0] != topic}

    @rule(beats=st.integers(1, 6))
    def wait(self, beats: int) -> None:
        """Time in which nobody beats. A client that has not been answered for a session stops working."""
        for _ in range(beats):
            self._pass(BEAT_MS)

    def _pass(self, by_ms: int) -> None:
        for place in list(self.players):
            if not self.players[place].wait(by_ms):
                del self.players[place]
        self.harness.clock.advance(by_ms)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        before = self._recorded()
        self.harness.restart(crash=crash)
        assert self._recorded() == before

    def _recorded(self) -> object:
        if GROUP not in self.harness.cluster.groups.groups:
            return None
        group = group_of(self.harness)
        return group.epoch, group.assignment_epoch, group.members, group.target, group.patterns, group.owners

    @rule()
    def quiet(self) -> None:
        """Let everybody follow its answers: then all that somebody wants is worked on."""
        for _ in range(SESSION_MS // BEAT_MS + 1):  # until whoever has gone without a word is put out
            for place in list(self.players):
                self.players[place].give_up()
                self._beat(place)
            self._pass(BEAT_MS)
        if not self.players:
            return
        for _ in range(4):
            for place in list(self.players):
                self._beat(place)
                self.players[place].give_up()
        assert describe(self.harness).group_state == "Stable"
        wanted = {
            (name, partition.index)
            for name, topic in self.harness.cluster.image.topics.items()
            if group_of(self.harness).is_subscribed_to(name)
            for partition in topic.partitions
        }
        assert owners(self.players.values()).keys() == wanted

    # --- what holds at all times ----------------------------------------------------------------------

    @invariant()
    def nobody_works_on_what_another_works_on(self) -> None:
        owners(self.players.values())

    @invariant()
    def epochs_never_go_back(self) -> None:
        if GROUP in self.harness.cluster.groups.groups:
            described = describe(self.harness)
            assert self.highest_epoch <= described.group_epoch
            assert described.assignment_epoch <= described.group_epoch
            assert all(member.member_epoch <= described.assignment_epoch for member in described.members)
            self.highest_epoch = described.group_epoch


TestConsumerGroups = ConsumerGroups.TestCase
