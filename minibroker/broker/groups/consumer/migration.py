"""The migration of groups between the classic protocol and KIP-848's, with members and assignments.

A classic group becomes a consumer group when the first member of the new protocol joins, and a classic one again when
the last such member has left. `group.consumer.migration.policy` says which of that is allowed if there are members.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.broker.groups.classic.classic_states import ClassicState
from minibroker.broker.groups.classic.members import CONSUMER_PROTOCOL, Member, Protocol
from minibroker.broker.groups.consumer import classic_metadata, consumer_records
from minibroker.broker.groups.consumer.assignors.specification import Partitions
from minibroker.broker.groups.consumer.member import (
    ClassicMember,
    ClassicProtocol,
    ConsumerMember,
    MemberState,
    add_epoch_to_partitions,
    remove_epochs_from_partitions,
)
from minibroker.broker.groups.consumer.state import ConsumerGroupState
from minibroker.broker.groups.consumer.subscriptions import hash_topic_metadata
from minibroker.broker.groups.group_entries import GroupChange
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import MalformedMessage

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

log = logging.getLogger("minibroker.groups")

UPGRADING = frozenset({"upgrade", "bidirectional"})
DOWNGRADING = frozenset({"downgrade", "bidirectional"})


def _get_migration_policy(cluster: Cluster) -> str:
    """Return `group.consumer.migration.policy` in small letters."""
    policy: str = cluster.settings["group.consumer.migration.policy"]
    return policy.lower()


def check_classic_member_allowed(group: ConsumerGroupState) -> None:
    """Raise KafkaError(INCONSISTENT_GROUP_PROTOCOL) if nobody may join with the classic protocol."""
    if _get_migration_policy(group.context.cluster) == "disabled":
        message = f"Group {group.group_id} uses the new protocol, and group.consumer.migration.policy is disabled."
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, message)


# --- to the new protocol ----------------------------------------------------------------------------


def upgrade_group(classic: ClassicGroup, group: ConsumerGroupState) -> list[GroupChange]:
    """Move the members of a classic group to a new consumer group; return the records to append for that.

    Raises KafkaError(GROUP_ID_NOT_FOUND) if the group must stay a classic one.
    """
    if classic.is_empty:
        return []
    _check_may_upgrade(classic)
    changes = _make_upgrade_records(classic)
    for change in changes:
        group.apply_record_change(change)
    return changes


def _check_may_upgrade(classic: ClassicGroup) -> None:
    cluster = classic.context.cluster
    if _get_migration_policy(cluster) not in UPGRADING:
        raise _make_upgrade_error(classic, "online upgrade is disabled")
    if classic.kind != CONSUMER_PROTOCOL:
        raise _make_upgrade_error(classic, "the group does not use the consumer embedded protocol")
    if len(classic.members) > cluster.settings["group.consumer.max.size"]:
        raise _make_upgrade_error(classic, "the group size exceeds the consumer group maximum size")


def _make_upgrade_error(classic: ClassicGroup, reason: str) -> KafkaError:
    log.info("group %s stays a classic one: %s", classic.group_id, reason)
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _make_upgrade_records(classic: ClassicGroup) -> list[GroupChange]:
    """Return the records of a consumer group with these members; their last assignment is also its first target."""
    group_id, epoch = classic.group_id, classic.generation
    members = [_convert_to_consumer_member(classic, member) for member in classic.members.values()]
    topic_names = set[str]().union(*(member.topic_names for member in members))
    metadata_hash = hash_topic_metadata(topic_names, classic.context.cluster.image)
    return [
        *(consumer_records.make_member_metadata_record(group_id, member) for member in members),
        consumer_records.make_group_epoch_record(group_id, epoch, metadata_hash),
        *(
            consumer_records.make_target_assignment_record(
                group_id, member.member_id, remove_epochs_from_partitions(member.assigned)
            )
            for member in members
        ),
        consumer_records.make_target_epoch_record(group_id, epoch, 0),
        *(consumer_records.make_current_assignment_record(group_id, member) for member in members),
    ]


def _convert_to_consumer_member(classic: ClassicGroup, member: Member) -> ConsumerMember:
    protocol = classic.protocol or member.protocols[0].name
    try:
        subscription = classic_metadata.decode_subscription(member.get_metadata(protocol))
        given = classic_metadata.decode_assignment(member.assignment)
    except MalformedMessage as error:
        log.warning("what member %s of group %s says cannot be read: %s", member.member_id, classic.group_id, error)
        raise _make_upgrade_error(classic, "the embedded consumer protocol is malformed") from None
    if given.user_data:
        hint = "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade"
        raise _make_upgrade_error(classic, f"an unsupported custom assignor is in use. {hint}")
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(
            member.session_timeout_ms, tuple(ClassicProtocol(each.name, each.metadata) for each in member.protocols)
        ),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        state=MemberState.STABLE,
        assigned=add_epoch_to_partitions(
            classic.generation, classic_metadata.get_assigned_partitions(given, classic.context.cluster.image)
        ),
    )


# --- back to the classic protocol -------------------------------------------------------------------


def must_downgrade_without_members(group: ConsumerGroupState, leaving_members: Collection[str]) -> bool:
    """Return whether the group becomes a classic one when these members are gone, or speak the classic protocol."""
    staying = [member for member in group.members.values() if member.member_id not in leaving_members]
    if not all(member.classic for member in staying):
        return False
    cluster = group.context.cluster
    if _get_migration_policy(cluster) not in DOWNGRADING:
        log.info("group %s stays a consumer group: online downgrade is disabled", group.group_id)
        return False
    limit: int = cluster.settings["group.max.size"]
    return len(staying) <= limit


def downgrade_group(
    group: ConsumerGroupState,
    members: Collection[ConsumerMember],
    target: Mapping[str, Partitions],
    reason: str,
    *,
    rebalances: bool,
) -> None:
    """Replace the group by a classic one with these members and their targets; they join again if it `rebalances`.

    Raises KafkaError, and nothing has changed.
    """
    context = group.context
    classic = ClassicGroup(context, group.group_id, group.offsets)
    classic.kind = CONSUMER_PROTOCOL
    classic.generation = group.epoch
    classic.state = ClassicState.STABLE
    for member in members:
        classic.add_member(_convert_to_classic_member(group, member, target.get(member.member_id, {})))
    classic.protocol = classic.select_protocol()
    classic.update_subscribed_topics()
    context.append_entries(group.group_id, [*group.make_tombstones(), classic.encode_group_metadata_entry()])
    context.groups[group.group_id] = classic
    group.close_with_error(ErrorCode.NOT_COORDINATOR)
    log.info("group %s is a classic one now: %s", group.group_id, reason)
    for each in classic.members.values():
        classic.restart_session_timeout(each)
    if rebalances:
        classic.begin_rebalance(reason)


def _convert_to_classic_member(group: ConsumerGroupState, member: ConsumerMember, target: Partitions) -> Member:
    assert member.classic is not None
    protocols = member.classic.protocols
    image = group.context.cluster.image
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        [Protocol(each.name, each.metadata) for each in protocols],
        classic_metadata.encode_assignment(target, image, protocols[0].metadata),
    )
