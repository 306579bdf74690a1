"""What happens to a group while a producer writes, whichever libraries its members have and whichever broker it is.

What always has to hold is asked here: every record is read at least once, offsets never go back, and no partition has
two owners at a time. Which libraries, assignors and brokers there are is in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from confluent_kafka import ConsumerGroupType

from tests.clients.confluent import Confluent
from tests.clients.groups import Group, Member, Numbers, group_of

PARTITIONS = 4
LOOKS = 10


class Broker(Protocol):
    """A broker process, as these scenarios use it."""

    def kill(self) -> None:
        """Ends the process as a crash would."""

    def start(self) -> None:
        """Starts it again on the same data, at the same address."""


@contextmanager
def group_with_topic(servers: str, directory: Path) -> Iterator[Group]:
    """The group g, and the topic t that its members read."""
    with Confluent().admin(servers) as admin:
        admin.create_topic("t", PARTITIONS, {})
    with group_of(servers, "g", "t", PARTITIONS, directory) as group:
        yield group


@contextmanager
def written_to(*groups: Group) -> Iterator[None]:
    """The topic of these groups is written to during the block; then they read all of it, and their members leave."""
    with Numbers(groups[0].servers, groups[0].topic, PARTITIONS) as numbers:
        yield
        for group in groups:
            group.await_looks(LOOKS)
        numbers.stop()
        for group in groups:
            group.await_end(numbers.acknowledged)
    for group in groups:
        group.leave()
        group.stop()
        check(group, numbers.acknowledged)


def check(group: Group, written: set[str]) -> None:
    """Check what must hold once everybody has left."""
    missing, overlaps, steps_back = written - group.read(), group.overlaps(), group.steps_back()
    assert not missing, f"never read: {missing}"
    assert overlaps == [], f"two members had a partition: {overlaps}"
    assert steps_back == [], f"(partition, offset, smaller one after it): {steps_back}"
    assert len(group.seen) > LOOKS


def members_come_and_go(broker: Broker, group: Group, library: str, other: str, assignor: str) -> None:
    """Three members, of which the last is of the other library; one is killed and replaced, one leaves."""
    kind = ConsumerGroupType.CONSUMER if assignor.startswith("consumer:") else ConsumerGroupType.CLASSIC
    with written_to(group):
        first = group.join(library, assignor)
        group.await_owners(first, partitions=PARTITIONS)
        second, third = group.join(library, assignor), group.join(other, assignor)
        group.await_owners(first, second, third, partitions=PARTITIONS)
        assert group.kind() is kind
        second.kill()
        group.await_owners(first, third, partitions=PARTITIONS)
        again = group.join(library, assignor)
        group.await_owners(first, third, again, partitions=PARTITIONS)
        broker.kill()
        broker.start()
        first.leave()
        group.await_owners(third, again, partitions=PARTITIONS)


def goes_over_and_back(broker: Broker, group: Group, old: tuple[str, str], new: tuple[str, str]) -> None:
    """Two members of a (library, assignor) are replaced one by one, and the group goes back with the last old one."""
    with written_to(group):
        first, second = group.join(*old), group.join(*old)
        group.await_owners(first, second, partitions=PARTITIONS)
        assert group.kind() is ConsumerGroupType.CLASSIC
        newer = group.join(*new)
        group.await_owners(first, second, newer, partitions=PARTITIONS)
        assert group.kind() is ConsumerGroupType.CONSUMER
        broker.kill()
        broker.start()
        second.leave()
        group.await_owners(first, newer, partitions=PARTITIONS)
        newer.leave()
        group.await_owners(first, partitions=PARTITIONS)
        assert group.kind() is ConsumerGroupType.CLASSIC


def five_join_at_once(group: Group, library: str, assignor: str) -> None:
    """One more than there are partitions."""
    with written_to(group):
        members = [group.join(library, assignor) for _ in range(5)]
        group.wait_for(
            lambda: sorted(len(member.owns) for member in members) == [0, 1, 1, 1, 1], "not one partition each"
        )


def static_member_comes_back(group: Group, library: str, assignor: str, ends: Callable[[Member], None]) -> None:
    """One of two static members ends, and has the same partitions when it is back; the other one notices nothing."""
    with written_to(group):
        first, second = group.join(library, assignor, "a"), group.join(library, assignor, "b")
        group.await_owners(first, second, partitions=PARTITIONS)
        before = len(first.assignments), second.owns
        ends(second)
        again = group.join(library, assignor, "b")
        group.await_owners(first, again, partitions=PARTITIONS)
        after = len(first.assignments), again.owns
        assert after == before, f"(assignments of the other one, own partitions): {before}, {after}"
