"""Kafka's simple assignor: each partition gets about as many members as any other, and each member as many partitions.

With more members than partitions, several members share a partition. What a member has stays where that is possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from minibroker.broker.groups.consumer.assignors.specification import Partitions, TopicPartition, by_topic, listed


def assigned(
    members: Mapping[str, frozenset[bytes]], present: Mapping[str, Partitions], indexes: Mapping[bytes, Iterable[int]]
) -> dict[str, Partitions]:
    """Return the partitions of each member.

    `members` has the topic ids that each subscribes to, `present` what it has, `indexes` the partitions of each topic.
    """
    target: dict[str, set[TopicPartition]] = {member_id: set() for member_id in members}
    readers: dict[frozenset[str], list[TopicPartition]] = {}
    for topic_id, partitions in sorted(indexes.items()):
        subscribed = frozenset(member_id for member_id, topic_ids in members.items() if topic_id in topic_ids)
        if subscribed:
            readers.setdefault(subscribed, []).extend(TopicPartition(index, topic_id) for index in sorted(partitions))
    for subscribed, wanted in readers.items():
        _share_out(sorted(subscribed), sorted(wanted), present, target)
    return {member_id: by_topic(share) for member_id, share in target.items()}


def _share_out(
    members: list[str],
    wanted: list[TopicPartition],
    present: Mapping[str, Partitions],
    target: dict[str, set[TopicPartition]],
) -> None:
    """Assign partitions to members that subscribe to the same ones."""
    sharing = -(-len(members) // len(wanted))  # the members of each partition
    few, more = divmod(len(wanted) * sharing, len(members))
    left = dict.fromkeys(wanted, sharing)
    quota = {member_id: few + (position < more) for position, member_id in enumerate(members)}
    for member_id in members:
        for one in listed(present.get(member_id, {})):
            if left.get(one) and quota[member_id]:
                target[member_id].add(one)
                left[one] -= 1
                quota[member_id] -= 1
    for one in wanted:
        takers = sorted((each for each in members if quota[each] and one not in target[each]), key=lambda m: -quota[m])
        for member_id in takers[: left[one]]:
            target[member_id].add(one)
            left[one] -= 1
            quota[member_id] -= 1
        if left[one] == sharing:  # the quotas are used up by others that share: nobody may be left out
            target[min(members, key=lambda each: len(target[each]))].add(one)
