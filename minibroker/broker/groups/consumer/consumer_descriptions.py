"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember, remove_epochs_from_partitions
from minibroker.broker.groups.consumer.state import ConsumerGroupState
from minibroker.broker.groups.consumer.updating import find_preferred_assignor
from minibroker.broker.groups.hash_order import iterate_in_hash_order
from minibroker.broker.metadata.image import Image
from minibroker.protocol.messages.consumer_groups import ConsumerGroupDescribeResponse

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions
Assignment = ConsumerGroupDescribeResponse.Assignment

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe_consumer_group(group: ConsumerGroupState) -> DescribedGroup:
    """Return the group with its members, their assignments and their targets."""
    cluster = group.context.cluster
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=find_preferred_assignor(group.members.values(), cluster.settings["group.consumer.assignors"]),
        members=[
            _describe_member(member, group.target.get(member.member_id, {}), cluster.image)
            for member in iterate_in_hash_order(group.members)
        ],
    )


def _describe_member(member: ConsumerMember, target: Partitions, image: Image) -> DescribedGroup.Member:
    return DescribedGroup.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_describe_assignment(_list_held_partitions(member), image),
        target_assignment=_describe_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _list_held_partitions(member: ConsumerMember) -> Partitions:
    """Return the partitions that the member owns, and those that it has still to revoke."""
    owned = dict(remove_epochs_from_partitions(member.assigned))
    for topic_id, partitions in remove_epochs_from_partitions(member.pending_revocation).items():
        owned[topic_id] = owned.get(topic_id, frozenset()) | partitions
    return owned


def _describe_assignment(partitions: Partitions, image: Image) -> Assignment:
    """Return the partitions with the names of their topics, without those that are deleted."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=image.topics_by_id[topic_id].name, partitions=sorted(indexes))
            for topic_id, indexes in sorted(partitions.items())
            if topic_id in image.topics_by_id
        ]
    )
