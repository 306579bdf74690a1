"""The subscriptions and assignments that members with the classic protocol embed in their requests.

They name topics, where the broker's records have ids; topics that do not exist are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.metadata.image import Image
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from minibroker.protocol.primitives import MalformedMessage

VERSION = Struct(">h")


def _read_message_version(data: bytes, message: type[Message]) -> int:
    """Return the version that the data begin with, or the newest known one: newer ones only add fields at the end."""
    version = int.from_bytes(data[: VERSION.size], "big", signed=True)
    if len(data) < VERSION.size or version < 0:
        raise MalformedMessage(message.__name__, version, "", f"{len(data)} bytes have no version")
    return min(version, message.versions[-1])


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Return a member's subscription. Raises MalformedMessage."""
    version = _read_message_version(metadata, ConsumerProtocolSubscription)
    return ConsumerProtocolSubscription.decode_from(metadata, version, VERSION.size)[0]


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment; an empty one if it has none yet. Raises MalformedMessage."""
    if not data:
        return ConsumerProtocolAssignment()
    version = _read_message_version(data, ConsumerProtocolAssignment)
    return ConsumerProtocolAssignment.decode_from(data, version, VERSION.size)[0]


def convert_names_to_topic_ids(partitions: Mapping[str, list[int]], image: Image) -> Partitions:
    """Return partitions by topic id, of those by topic name."""
    return {
        image.topics[name].topic_id: frozenset(indexes)
        for name, indexes in partitions.items()
        if name in image.topics and indexes
    }


def get_owned_partitions(subscription: ConsumerProtocolSubscription, image: Image) -> Partitions:
    """Return the partitions that a member reports to own."""
    return convert_names_to_topic_ids({each.topic: each.partitions for each in subscription.owned_partitions}, image)


def get_assigned_partitions(assignment: ConsumerProtocolAssignment, image: Image) -> Partitions:
    """Return the partitions of an assignment."""
    return convert_names_to_topic_ids({each.topic: each.partitions for each in assignment.assigned_partitions}, image)


def encode_assignment(partitions: Partitions, image: Image, subscription_metadata: bytes) -> bytes:
    """Return an assignment as its member reads it, in the version of its subscription. Raises MalformedMessage."""
    version = _read_message_version(subscription_metadata, ConsumerProtocolAssignment)
    given = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(
                topic=image.topics_by_id[topic_id].name, partitions=sorted(indexes)
            )
            for topic_id, indexes in sorted(partitions.items())
            if topic_id in image.topics_by_id
        ]
    )
    return VERSION.pack(version) + bytes(given.encode(version))
