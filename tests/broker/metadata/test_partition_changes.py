"""What is recorded of a partition's change, held against what must hold of every partition, whatever is asked of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.metadata.image import Image
from minibroker.broker.metadata.partition_changes import Election, PartitionChange
from minibroker.broker.metadata.partitions import NO_LEADER, Partition
from minibroker.protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord

ID = bytes(15) + b"\x07"
NODES = range(1, 6)
nodes = st.lists(st.sampled_from(NODES), unique=True)


def made(replicas: list[int], isr: list[int], leader: int) -> tuple[Image, Partition]:
    image = Image()
    image.apply_record(TopicRecord(name="t", topic_id=ID))
    image.apply_record(
        PartitionRecord(partition_id=0, topic_id=ID, replicas=replicas, isr=isr, leader=leader, leader_epoch=3)
    )
    return image, image.topics["t"].partitions[0]


def changed(image: Image, change: PartitionChange) -> PartitionChangeRecord | None:
    """The record, which the image knows then; a second look finds nothing to change."""
    record = change.make_change_record()
    if record is not None:
        image.apply_record(record)
    return record


def check(partition: Partition, live: set[int], elr: bool) -> None:
    replicas, isr = partition.replicas, partition.isr
    assert len(set(replicas)) == len(replicas) > 0
    assert set(isr) <= set(replicas) and len(set(isr)) == len(isr)
    assert isr or elr, "without eligible replicas, somebody is the last in sync"
    assert not set(isr) & set(partition.eligible_leader_replicas)
    assert partition.leader_id == NO_LEADER or partition.leader_id in isr
    assert set(partition.adding_replicas) | set(partition.removing_replicas) <= set(replicas)
    assert len(partition.directories) in (0, len(replicas))


@given(st.data())
def test_a_partition_stays_consistent_through_random_changes(data: st.DataObject) -> None:
    replicas = data.draw(nodes.filter(bool))
    image, partition = made(replicas, replicas, replicas[0])
    elr = data.draw(st.booleans())
    for _ in range(data.draw(st.integers(1, 8))):
        live = set(data.draw(nodes))
        change = PartitionChange(partition, live.__contains__, 2 if elr else None)
        match data.draw(st.sampled_from(("fence", "follow", "elect", "move", "cancel"))):
            case "fence":
                change.isr = [node for node in partition.isr if node in live]
                change.election = data.draw(st.sampled_from((Election.ONLINE, Election.UNCLEAN)))
            case "follow" if partition.leader_id in live:
                change.isr += [node for node in partition.replicas if node in live and node not in partition.isr]
            case "elect":
                change.election = data.draw(st.sampled_from(Election))
            case "move":
                wanted = data.draw(nodes.filter(bool))
                change.removing = sorted(set(partition.replicas) - set(wanted))
                change.adding = sorted(set(wanted) - set(partition.replicas))
                change.replicas = [*wanted, *change.removing]
            case "cancel" if set(partition.isr) - set(partition.adding_replicas):
                change.replicas = [node for node in partition.replicas if node not in partition.adding_replicas]
                change.isr = [node for node in partition.isr if node not in partition.adding_replicas]
                change.adding, change.removing = [], []
        leader, epoch, version = partition.leader_id, partition.leader_epoch, partition.partition_epoch
        record = changed(image, change)
        check(partition, live, elr)
        assert partition.partition_epoch == version + (record is not None)
        assert partition.leader_epoch == epoch + (record is not None and record.leader != -2)
        assert partition.leader_id == leader or partition.leader_id in (live | {NO_LEADER})


@given(nodes.filter(bool), nodes)
def test_a_leader_stays_leader_exactly_while_it_is_online(replicas: list[int], live: list[int]) -> None:
    image, partition = made(replicas, replicas, replicas[0])
    record = changed(image, PartitionChange(partition, set(live).__contains__, None))
    there = [node for node in replicas if node in live]
    assert partition.leader_id == (there[0] if there else NO_LEADER)
    assert (record is None) == (replicas[0] in live)


@given(nodes.filter(bool), nodes.filter(bool))
def test_a_reassignment_ends_once_the_new_replicas_are_in_sync(before: list[int], after: list[int]) -> None:
    image, partition = made(before, before, before[0])
    everybody = set(NODES)
    change = PartitionChange(partition, everybody.__contains__, None)
    change.removing, change.adding = sorted(set(before) - set(after)), sorted(set(after) - set(before))
    change.replicas = [*after, *change.removing]
    changed(image, change)
    assert partition.is_reassigning == bool(change.adding)
    change = PartitionChange(partition, everybody.__contains__, None)
    change.isr += [node for node in partition.replicas if node not in partition.isr]
    changed(image, change)
    assert (partition.replicas, partition.is_reassigning) == (after, False)
    assert set(partition.isr) == set(after)
    assert partition.leader_epoch == 3 + bool(set(before) - set(after)), "another epoch where replicas have gone"
    assert PartitionChange(partition, everybody.__contains__, None).make_change_record() is None


def test_an_unclean_leader_is_the_only_in_sync_replica() -> None:
    image, partition = made([1, 2, 3], [1], 1)
    change = PartitionChange(partition, {2, 3}.__contains__, None)
    change.election = Election.UNCLEAN
    changed(image, change)
    assert (partition.leader_id, partition.isr) == (2, [2])
