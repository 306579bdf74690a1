"""Consumers that join, sync, commit, leave, crash and stall at random, and a broker that restarts at random.

Whatever happens, no partition has two owners in one generation, committed offsets never go back, and once all is quiet
everybody who is left is in one stable group that has all partitions.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.broker.groups.classic.consumers import PARTITIONS, TOPIC, Consumer, Fenced, committed_offsets
from tests.broker.groups.classic.driving import Driver
from tests.broker.harness import Harness

MOST_CONSUMERS = 5
ROUNDS = 60
ROUND_MS = 500

picks = st.integers(0, MOST_CONSUMERS - 1)


class Consumers(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.harness = Harness(self.directory, settings={"offsets.topic.num.partitions": "1"})
        self.harness.create_topic(TOPIC, partitions=PARTITIONS)
        self.driver = Driver(self.harness)
        self.random = random.Random(1)
        self.consumers: list[Consumer] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.committed = dict.fromkeys(range(PARTITIONS), -1)

    def teardown(self) -> None:
        try:
            self.settle()
        finally:
            self.harness.logs.close_without_checkpoints()
            shutil.rmtree(self.directory)

    # --- what happens ---------------------------------------------------------------------------

    @initialize(instances=st.lists(st.sampled_from([None, "a", "b"]), min_size=1, max_size=3))
    def some_are_there(self, instances: list[str | None]) -> None:
        for instance in instances:
            self.somebody_comes(instance, 9)
        self.all_go_on(10)

    @precondition(lambda self: len(self.consumers) < MOST_CONSUMERS)
    @rule(instance=st.sampled_from([None, None, "a", "b"]), version=st.sampled_from([5, 8, 9]))
    def somebody_comes(self, instance: str | None, version: int) -> None:
        self.consumers.append(Consumer(self.driver, instance, version))

    @precondition(lambda self: len(self.consumers) < MOST_CONSUMERS)
    @rule(version=st.sampled_from([0, 1, 3]))
    def somebody_of_old_comes(self, version: int) -> None:
        self.consumers.append(Consumer(self.driver, None, version))

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_steps(self, pick: int) -> None:
        self.step(self.consumers[pick % len(self.consumers)])

    @rule(rounds=st.integers(1, 8))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for consumer in list(self.consumers):
                self.step(consumer)
            self.harness.clock.advance(ROUND_MS)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_commits(self, pick: int) -> None:
        consumer = self.consumers[pick % len(self.consumers)]
        try:
            consumer.commit_next(self.random)
        except Fenced:
            self.consumers.remove(consumer)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_leaves(self, pick: int) -> None:
        self.consumers.pop(pick % len(self.consumers)).leave()

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def one_crashes(self, pick: int) -> None:
        self.consumers.pop(pick % len(self.consumers)).vanish()

    @rule(by_ms=st.sampled_from([0, 1, 400, 2500, 7000, 20_000]))
    def time_passes(self, by_ms: int) -> None:
        self.harness.clock.advance(by_ms)

    @rule(crash=st.booleans())
    def the_broker_restarts(self, crash: bool) -> None:
        self.harness.restart(crash=crash)
        for consumer in self.consumers:
            consumer.disconnected()

    # --- what holds -----------------------------------------------------------------------------

    def step(self, consumer: Consumer) -> None:
        try:
            consumer.step()
        except Fenced:
            self.consumers.remove(consumer)
        for partition in consumer.owned or ():
            owner = self.owners.setdefault((consumer.generation, partition), consumer.name)
            assert owner == consumer.name, f"partition {partition} in generation {consumer.generation}"

    @invariant()
    def committed_offsets_never_go_back(self) -> None:
        committed = committed_offsets(self.driver)
        assert all(committed[partition] >= offset for partition, offset in self.committed.items())
        self.committed = committed

    def settle(self) -> None:
        """Nothing happens but that those who are left go on: they all find together."""
        self.all_go_on(ROUNDS)
        group = self.harness.cluster.groups.groups.get(self.driver.name)
        if self.consumers:
            assert group is not None
            assert group.state_name == "Stable"
            assert {consumer.member_id for consumer in self.consumers} == set(self.driver.group.members)
            assert {consumer.generation for consumer in self.consumers} == {self.driver.group.generation}
            owned = sorted(partition for consumer in self.consumers for partition in consumer.owned or ())
            assert owned == list(range(PARTITIONS))
        elif group is not None:
            assert group.state_name == "Empty"


TestConsumers = Consumers.TestCase
TestConsumers.settings = settings(stateful_step_count=25)
