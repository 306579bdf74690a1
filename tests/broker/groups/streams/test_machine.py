"""Random members, silences, settings and restarts: nobody ever runs a task that another one runs.

The members are as slow as clients may be: one that is told to give tasks up runs them until it says that it does not
any more.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from tests.broker.groups.streams.driving import (
    BEAT_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Player,
    TaskOffset,
    describe,
    group_of,
    topology,
)
from tests.broker.harness import Harness

MEMBERS = st.integers(0, 4)
GONE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}


class SlowPlayer(Player):
    """A member that runs what it is to give up until `give_up`: active tasks (`runs`), standbys (`keeps`), warm-ups.

    `silent_ms` is how long it has had no answer, `late_ms` how long it has been told to give something up. As clients
    do, it stops when that is as long as a session, or as its rebalance timeout.
    """

    silent_ms = 0
    late_ms = 0
    reports = False
    progress = 0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.runs: set[int] = set()
        self.keeps: set[int] = set()
        self.warms: set[int] = set()

    def told(self) -> tuple[set[int], set[int], set[int]]:
        """Return what the last answers say that it has."""
        return tuple(tasks.get("0", set()) for tasks in (self.active, self.standby, self.warmup))  # type: ignore[return-value]

    def step(self, *, joins: bool = False) -> Any:
        """Report what it runs; what it is given begins at once, what it loses goes on, unless its role changes."""
        before, told = (self.runs, self.keeps, self.warms), (self.active, self.standby, self.warmup)
        if joins:
            answer = self.join()
        else:
            self.active, self.standby, self.warmup = {"0": self.runs}, {"0": self.keeps}, {"0": self.warms}
            answer = self.beat(**self.offsets())
            if answer.active_tasks is None:
                self.active, self.standby, self.warmup = told
        if answer.error_code == ErrorCode.NONE:
            active, standby, warmup = self.told()
            self.runs = before[0] | active
            self.keeps = (before[1] | standby) - self.runs - warmup
            self.warms = (before[2] | warmup) - self.runs - standby
            self.silent_ms = 0
        return answer

    def offsets(self) -> dict[str, Any]:
        """Return what it reports of its copies: each is restored to `progress` of 20,000 offsets."""
        said = [
            [TaskOffset(subtopology_id="0", partition=task, offset=offset) for task in sorted(self.keeps | self.warms)]
            for offset in (self.progress, 20_000)
        ]
        return {"task_offsets": said[0], "task_end_offsets": said[1]} if self.reports else {}

    def give_up(self) -> None:
        """Stop what it does not have any more; its next heartbeat says so."""
        self.runs, self.keeps, self.warms = map(set, self.told())
        self.late_ms = 0

    def wait(self, by_ms: int) -> bool:
        """Let time pass; return whether it still runs."""
        self.silent_ms += by_ms
        self.late_ms += by_ms if (self.runs, self.keeps, self.warms) != self.told() else 0
        return self.silent_ms < SESSION_MS and self.late_ms < REBALANCE_MS


class StreamsGroups(RuleBasedStateMachine):
    """Five places for members of three processes, two of them static, in one group whose tasks have state."""

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

    @initialize(standbys=st.integers(0, 2))
    def begin(self, standbys: int) -> None:
        self.harness.create_topic("t", 3)
        self.configure("streams.num.standby.replicas", standbys)

    def configure(self, name: str, value: int) -> None:
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        resource = kind(
            resource_type=32, resource_name=GROUP, configs=[kind.AlterableConfig(name=name, value=str(value))]
        )
        self.harness.request(IncrementalAlterConfigsRequest(resources=[resource]))

    # --- members ----------------------------------------------------------------------------------

    @rule(place=MEMBERS)
    def join(self, place: int) -> None:
        if place in self.players:
            return
        self.lives += 1
        instance = f"i{place}" if place < 2 else None
        said = topology("t", changelog="changelog")
        player = SlowPlayer(self.harness, f"m{place}-{self.lives}", said, f"p{place // 2}", instance)
        player.version = 0 if place == 4 else 1  # which knows no warm-ups
        answer = player.step(joins=True)
        if answer.error_code == ErrorCode.NONE:
            self.players[place] = player
        else:
            assert answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID

    @rule(place=MEMBERS)
    def beat(self, place: int) -> None:
        if place in self.players and self.players[place].step().error_code != ErrorCode.NONE:
            assert self.players.pop(place).beat().error_code in GONE

    @rule(place=MEMBERS, progress=st.sampled_from([0, 9_000, 19_999]))
    def restore(self, place: int, progress: int) -> None:
        """From now on it reports how far its copies are."""
        if place in self.players:
            self.players[place].reports, self.players[place].progress = True, progress

    @rule(count=st.integers(0, 2))
    def warm_up(self, count: int) -> None:
        self.configure("streams.num.warmup.replicas", count)

    @rule(place=MEMBERS)
    def give_up(self, place: int) -> None:
        if place in self.players:
            self.players[place].give_up()

    @rule(place=MEMBERS, for_a_while=st.booleans())
    def leave(self, place: int, for_a_while: bool) -> None:
        if place in self.players:
            self.players.pop(place).ask(member_epoch=-2 if for_a_while and place < 2 else -1)

    @rule(place=MEMBERS)
    def crash(self, place: int) -> None:
        """The process is gone, and its tasks with it; the broker hears nothing of that."""
        self.players.pop(place, None)

    # --- topics, settings and time ----------------------------------------------------------------

    @rule(count=st.integers(0, 2))
    def keep(self, count: int) -> None:
        self.configure("streams.num.standby.replicas", count)

    @rule(interval_ms=st.sampled_from([0, 1000]))
    def hurry(self, interval_ms: int) -> None:
        self.configure("streams.assignment.interval.ms", interval_ms)

    @rule(beats=st.integers(1, 6))
    def wait(self, beats: int) -> None:
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
        owners = group.active_owners, group.standby_keepers, group.warmup_keepers
        return group.epoch, group.assignment_epoch, group.members, group.target, group.topology, owners

    @rule()
    def quiet(self) -> None:
        """Let everybody follow its answers: then every task runs, and has the standbys that it can have."""
        for _ in range(SESSION_MS // BEAT_MS + 1):  # until whoever has gone without a word is put out
            for place in list(self.players):
                self.players[place].give_up()
                self.beat(place)
            self._pass(BEAT_MS)
        if not self.players:
            return
        for player in self.players.values():
            player.reports, player.progress = True, 19_999
        for _ in range(16):
            for place in list(self.players):
                self.beat(place)
                self.players[place].give_up()
            self._pass(BEAT_MS)
        assert describe(self.harness).group_state == "Stable"
        running = Counter(task for player in self.players.values() for task in player.runs)
        assert running == Counter(range(3))

    # --- what holds at all times --------------------------------------------------------------------

    @invariant()
    def nobody_runs_what_another_runs(self) -> None:
        running = Counter(task for player in self.players.values() for task in player.runs)
        assert not running or max(running.values()) == 1

    @invariant()
    def no_process_has_a_task_twice(self) -> None:
        for process in {player.process for player in self.players.values()}:
            of_process = [player for player in self.players.values() if player.process == process]
            having = Counter(task for player in of_process for task in (*player.runs, *player.keeps, *player.warms))
            assert not having or max(having.values()) == 1, (process, having)

    @invariant()
    def epochs_never_go_back(self) -> None:
        if GROUP in self.harness.cluster.groups.groups:
            described = describe(self.harness)
            assert self.highest_epoch <= described.group_epoch
            assert described.assignment_epoch <= described.group_epoch
            assert all(member.member_epoch <= described.assignment_epoch for member in described.members)
            self.highest_epoch = described.group_epoch


TestStreamsGroups = StreamsGroups.TestCase
