"""What classic members say inside their requests, read and written in the versions that they know."""

from __future__ import annotations

import pytest

from minibroker.broker.groups.consumer import classic_metadata
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.primitives import MalformedMessage
from tests.broker.harness import Harness

VERSIONS = ConsumerProtocolSubscription.versions
Partition = ConsumerProtocolSubscription.TopicPartition


@pytest.mark.parametrize("version", VERSIONS)
def test_subscriptions_of_every_version_are_decoded(harness: Harness, version: int) -> None:
    harness.create_topic("t", 3)
    owned = [Partition(topic="t", partitions=[0, 2]), Partition(topic="gone", partitions=[1])]
    said = ConsumerProtocolSubscription(topics=["t", "gone"], owned_partitions=owned, rack_id="r")
    read = classic_metadata.decode_subscription(version.to_bytes(2, "big") + bytes(said.encode(version)))
    assert (read.topics, read.rack_id) == (["t", "gone"], "r" if version >= 3 else None)
    topic_id = harness.cluster.image.topics["t"].topic_id
    expected = {topic_id: frozenset({0, 2})} if version >= 1 else {}
    assert classic_metadata.get_owned_partitions(read, harness.cluster.image) == expected


def test_known_fields_of_a_newer_subscription_version_are_decoded() -> None:
    newest = VERSIONS[-1]
    data = (newest + 1).to_bytes(2, "big") + bytes(ConsumerProtocolSubscription(topics=["t"]).encode(newest)) + b"new"
    assert classic_metadata.decode_subscription(data).topics == ["t"]


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1", b"\0\0\x7f\xff\xff\xff"])
def test_bytes_that_are_no_subscription_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        classic_metadata.decode_subscription(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_assignment_is_encoded_in_the_members_version(harness: Harness, version: int) -> None:
    harness.create_topic("t", 3)
    topic_id = harness.cluster.image.topics["t"].topic_id
    partitions = {topic_id: frozenset({2, 0}), bytes(15) + b"x": frozenset({1})}
    data = classic_metadata.encode_assignment(partitions, harness.cluster.image, version.to_bytes(2, "big"))
    assert data[:2] == version.to_bytes(2, "big")
    read = ConsumerProtocolAssignment.decode(data[2:], version)
    assert [(each.topic, each.partitions) for each in read.assigned_partitions] == [("t", [0, 2])]
    assert classic_metadata.get_assigned_partitions(
        classic_metadata.decode_assignment(data), harness.cluster.image
    ) == {topic_id: frozenset({0, 2})}


def test_an_empty_assignment_has_no_partitions(harness: Harness) -> None:
    assert (
        classic_metadata.get_assigned_partitions(classic_metadata.decode_assignment(b""), harness.cluster.image) == {}
    )
