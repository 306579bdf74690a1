"""Consumers as far as a coordinator notices them: each does one step of the classic protocol at a time.

They do what a client library does with each answer; what must hold of all of them is the state machine's business.
"""

from __future__ import annotations

import random
from typing import Any

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from tests.broker.groups.classic.driving import Driver
from tests.broker.harness import Waiting

TOPIC = "t"
PARTITIONS = 3
SESSION_MS = 6000
REBALANCE_MS = 8000
COMMIT_VERSION, FETCH_VERSION = 8, 7


class Fenced(Exception):
    """Another one has taken its place: a client gives up."""


class Consumer:
    """One consumer. `owned` are its partitions in `generation`; None while it has no assignment."""

    def __init__(self, driver: Driver, instance: str | None, join_version: int) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: list[int] | None = None
        self._driver = driver
        self._version = join_version
        self._positions: dict[int, int] = {}
        self._joined: Any = None
        self._waiting: Any = None

    @property
    def name(self) -> str:
        """Return the name that stays the same in another life of a static member."""
        return self.instance or self.member_id

    # --- steps ----------------------------------------------------------------------------------

    def step(self) -> None:
        """Send the next request, or look whether the answer to the last one is there. Raises Fenced."""
        if isinstance(self._waiting, Waiting):
            if self._waiting.done:
                answer, self._waiting = self._waiting.response(), None
                self._answered(answer)
        elif self.owned is not None:
            self._heard(self._driver.heartbeat(self.member_id, self.generation, instance=self.instance))
        elif self._joined is not None:
            self._sync()
        else:
            self._join()

    def disconnected(self) -> None:
        """The broker has gone, and with it what was asked of it."""
        self._waiting = None

    def vanish(self) -> None:
        """Crash: the broker sees no more than that the connection closes."""
        if isinstance(self._waiting, Waiting) and not self._waiting.done:
            self._waiting.go_away()

    def leave(self) -> None:
        """Go, as `close` of a client does it."""
        self.vanish()
        if self.member_id:
            self._driver.leave((self.member_id, self.instance))

    def _join(self) -> None:
        self._waiting = self._driver.ask_join(
            self.member_id,
            instance=self.instance,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=self._version,
        )
        if not isinstance(self._waiting, Waiting):
            answer, self._waiting = self._waiting, None
            self._answered(answer)

    def _sync(self) -> None:
        joined, assignments = self._joined, {}
        members = [member.member_id for member in joined.members]
        if joined.leader == self.member_id and members and not joined.skip_assignment:
            assignments = {
                member_id: bytes(range(number, PARTITIONS, len(members))) for number, member_id in enumerate(members)
            }
        self._waiting = self._driver.ask_sync(joined, assignments, instance=self.instance, version=4)
        if not isinstance(self._waiting, Waiting):
            answer, self._waiting = self._waiting, None
            self._answered(answer)

    # --- answers --------------------------------------------------------------------------------

    def _answered(self, answer: Any) -> None:
        if answer.error_code == ErrorCode.NONE and self._joined is None:
            self._joined, self.member_id, self.generation = answer, answer.member_id, answer.generation_id
        elif answer.error_code == ErrorCode.NONE:
            self._joined, self.owned = None, list(answer.assignment)
            self._positions = {
                partition: max(offset, 0) for partition, offset in committed_offsets(self._driver).items()
            }
        elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        else:
            self._heard(ErrorCode(answer.error_code))

    def _heard(self, code: ErrorCode) -> None:
        """Do what a client does about an error: join again, maybe as somebody new, or give up."""
        if code == ErrorCode.NONE:
            return
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise Fenced
        known = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID}
        assert code in known, code
        self._joined = self.owned = None
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    # --- offsets --------------------------------------------------------------------------------

    def commit_next(self, source: random.Random) -> None:
        """Commit one record more of one of its partitions, as far as it knows."""
        if not self.owned:
            return
        partition = source.choice(self.owned)
        self._positions[partition] += 1
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=self._positions[partition]
                )
            ],
        )
        request = OffsetCommitRequest(
            group_id=self._driver.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[topic],
        )
        answer = self._driver.harness.request(request, COMMIT_VERSION)
        self._heard(ErrorCode(answer.topics[0].partitions[0].error_code))


def committed_offsets(driver: Driver) -> dict[int, int]:
    """Return what the group has committed, by partition; -1 for nothing."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    answer = driver.harness.request(OffsetFetchRequest(group_id=driver.name, topics=[topic]), FETCH_VERSION)
    return {each.partition_index: each.committed_offset for each in answer.topics[0].partitions}
