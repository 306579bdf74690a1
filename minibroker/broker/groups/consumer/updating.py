"""A change of a consumer group: the records so far, and what the group will be with them.

Nothing changes before `Update.append_changes`, which appends all records or none. Patterns are matched after the answer
to the heartbeat that brought them, as in Kafka: a later heartbeat brings their topics. There may be many topics: they
are looked through in slices (`resolve_subscribed_patterns_soon`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from minibroker.broker.clock import run_steps_in_slices
from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.groups.consumer import consumer_records
from minibroker.broker.groups.consumer.assignors import ASSIGNORS
from minibroker.broker.groups.consumer.assignors.specification import MemberSpecification, Partitions
from minibroker.broker.groups.consumer.member import ConsumerMember
from minibroker.broker.groups.consumer.reconciliation import ReconciliationState, reconcile_member
from minibroker.broker.groups.consumer.state import ConsumerGroupState
from minibroker.broker.groups.consumer.subscriptions import (
    ResolvedPattern,
    collect_subscribed_patterns,
    compile_subscribed_pattern,
    find_subscribed_topic_ids,
    hash_topic_metadata,
)
from minibroker.broker.groups.group import Group
from minibroker.broker.groups.group_entries import GroupChange
from minibroker.broker.groups.heartbeats import JOINING_EPOCH
from minibroker.broker.security.operations import DESCRIBE_TOPIC
from minibroker.patterns.program import Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.steps import Steps, split_into_portions

log = logging.getLogger("minibroker.groups")


class ConsumerGroupUpdate:
    """A change of `group`.

    A group that takes the place of another (`replaced`) is not recorded yet: `first` are the records that make it.
    """

    def __init__(
        self, group: ConsumerGroupState, first_changes: Sequence[GroupChange] = (), replaced: Group | None = None
    ) -> None:
        self.group = group
        self.replaced = replaced
        self.changes: list[GroupChange] = [*first_changes]
        self.epoch = group.epoch
        self.members = group.members
        self.target = group.target
        self.assignment_epoch = group.assignment_epoch
        self._patterns = group.patterns
        self._forgets = False  # whether a pattern may have lost its last member
        self._resolves = False  # whether there is a new pattern, which is not resolved yet
        self._cluster = group.context.cluster
        self._image = self._cluster.image

    # --- members --------------------------------------------------------------------------------

    def record_member_and_compare_subscription(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Record the member if it has changed; return whether its subscription differs from that of `before`.

        Raises KafkaError(INVALID_REGULAR_EXPRESSION).
        """
        new_pattern = member.topic_regex if member.topic_regex != before.topic_regex else ""
        if new_pattern and new_pattern not in self._patterns:
            compile_subscribed_pattern(new_pattern)
            self._resolves = True
        self._forgets = self._forgets or member.topic_regex != before.topic_regex
        if member != before or member.member_id not in self.members:
            self.changes.append(consumer_records.make_member_metadata_record(self.group.group_id, member))
            self.members = {**self.members, member.member_id: member}
        return member.topic_names != before.topic_names or member.topic_regex != before.topic_regex

    def has_subscription_changed(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Return whether the member reads other topics than before, as far as its pattern is resolved."""
        is_known = not member.topic_regex or member.topic_regex in self._patterns
        return member.topic_names != before.topic_names or (member.topic_regex != before.topic_regex and is_known)

    def has_preferred_assignor_changed(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Return whether the assignor of the group is another one, now that the member asks for what it does."""
        if member.server_assignor == before.server_assignor:
            return False
        available: Sequence[str] = self._cluster.settings["group.consumer.assignors"]
        return find_preferred_assignor(self.group.members.values(), available) != self._choose_assignor()

    def replace_static_member(self, member: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member that joins again a new id, with its target and partitions; return it."""
        group_id = self.group.group_id
        replacement = member._replace(member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
        target = self.target.get(member.member_id, {})
        self.remove_members([member])
        self.members[replacement.member_id] = replacement
        self.target[replacement.member_id] = target
        self.changes += [
            consumer_records.make_member_metadata_record(group_id, replacement),
            consumer_records.make_target_assignment_record(group_id, replacement.member_id, target),
            consumer_records.make_current_assignment_record(group_id, replacement),
        ]
        return replacement

    def remove_members(self, members: Iterable[ConsumerMember]) -> None:
        """Remove members, with their targets."""
        self._forgets = True
        self.members, self.target = {**self.members}, {**self.target}
        for member in members:
            self.changes += consumer_records.make_member_tombstones(self.group.group_id, member.member_id)
            self.members.pop(member.member_id, None)
            self.target.pop(member.member_id, None)

    # --- the group's epoch ------------------------------------------------------------------------

    def begin_epoch_if_changed(self, *, members_changed: bool) -> None:
        """Begin another epoch if the members or the topics that they subscribe to have changed."""
        if self._forgets:
            self._remove_unused_patterns()
        if not members_changed and self.group.looked_at_commit == self._cluster.commits:
            return
        self._begin_epoch_if_topics_changed(members_changed)

    def record_pattern_topics(self, resolved_patterns: Mapping[str, frozenset[str]]) -> None:
        """Record the topics that patterns match, and begin another epoch if they have changed."""
        changed = False
        for pattern, topics in resolved_patterns.items():
            known = self._patterns.get(pattern)
            if known is None or known.topics != topics:
                changed = changed or topics != (known.topics if known else frozenset())
                version = self._cluster.metadata_log.storage.log_end_offset - 1
                self._record_pattern(pattern, ResolvedPattern(topics, version, self._cluster.clock.wall_ms()))
        self._begin_epoch_if_topics_changed(changed)

    def _begin_epoch_if_topics_changed(self, is_changed: bool) -> None:
        """Begin another epoch if `is_changed`, or the metadata of the subscribed topics has changed."""
        found = hash_topic_metadata(self._collect_subscribed_topics(), self._image)
        if is_changed or found != self.group.metadata_hash:
            self.epoch += 1
            self.changes.append(consumer_records.make_group_epoch_record(self.group.group_id, self.epoch, found))
            if self.group.has_partition_metadata:
                self.changes.append(consumer_records.make_partition_metadata_tombstone(self.group.group_id))

    def _remove_unused_patterns(self) -> None:
        """Remove the patterns that nobody subscribes to any more."""
        for pattern in self._patterns.keys() - collect_subscribed_patterns(self.members.values()):
            self._record_pattern(pattern, None)

    def _record_pattern(self, pattern: str, resolved_pattern: ResolvedPattern | None) -> None:
        """Add the record of the topics that a pattern matches, or (None) its tombstone."""
        self.changes.append(consumer_records.make_pattern_topics_record(self.group.group_id, pattern, resolved_pattern))
        self._patterns = {**self._patterns}
        if resolved_pattern is None:
            del self._patterns[pattern]
        else:
            self._patterns[pattern] = resolved_pattern

    def _collect_subscribed_topics(self) -> set[str]:
        subscriptions = {member.topic_names for member in self.members.values()}
        return set[str]().union(*subscriptions, *(pattern.topics for pattern in self._patterns.values()))

    # --- the target -------------------------------------------------------------------------------

    @property
    def is_assignment_due(self) -> bool:
        """Whether the group's epoch has no target, and the assignment interval is over."""
        return self.epoch > self.assignment_epoch and self._cluster.clock.wall_ms() >= self._get_next_assignment_ms()

    def make_target_assignment_if_due(self) -> None:
        """Make a target assignment for the group's epoch, if there is none and the assignment interval is over."""
        if not self.is_assignment_due:
            return
        group_id, now_ms = self.group.group_id, self._cluster.clock.wall_ms()
        counts = {topic_id: len(topic.partitions) for topic_id, topic in self._image.topics_by_id.items()}
        target = ASSIGNORS[self._choose_assignor()](self._make_member_specifications(), counts)
        for member_id, partitions in target.items():
            before = self.target.get(member_id)
            if before is not partitions and before != partitions:
                self.changes.append(consumer_records.make_target_assignment_record(group_id, member_id, partitions))
        self.changes.append(consumer_records.make_target_epoch_record(group_id, self.epoch, now_ms))
        self.target, self.assignment_epoch = target, self.epoch

    def make_empty_target_assignment(self) -> None:
        """Record the empty target of a group without members; it begins no assignment interval."""
        self.changes.append(consumer_records.make_target_epoch_record(self.group.group_id, self.epoch, 0))

    def _get_next_assignment_ms(self) -> int:
        """Return when (ms since 1970) the assignment interval is over; 0 without an assignment so far."""
        interval_ms: int = get_group_config(self._cluster, self.group.group_id, "consumer.assignment.interval.ms")
        last_ms = self.group.assignment_timestamp_ms
        return last_ms + interval_ms if last_ms else 0

    def _choose_assignor(self) -> str:
        return find_preferred_assignor(self.members.values(), self._cluster.settings["group.consumer.assignors"])

    def _make_member_specifications(self) -> dict[str, MemberSpecification]:
        """Return what the assignor needs of each member, by id: its topics and its present target."""
        wanted = {
            subscription: find_subscribed_topic_ids(*subscription, self._patterns, self._image)
            for subscription in {(member.topic_names, member.topic_regex) for member in self.members.values()}
        }
        return {
            member_id: MemberSpecification(
                wanted[member.topic_names, member.topic_regex], self.target.get(member_id, {})
            )
            for member_id, member in self.members.items()
        }

    # --- one member -------------------------------------------------------------------------------

    def reconcile_member(
        self, member: ConsumerMember, owned_partitions: Partitions | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Return the member on the way to its target, and record it. Raises KafkaError.

        The member reports that it owns `owned_partitions`; None if it reports nothing.
        """
        after = reconcile_member(
            member,
            ReconciliationState(
                self.assignment_epoch,
                self.target.get(member.member_id, {}),
                owned_partitions,
                find_subscribed_topic_ids(member.topic_names, member.topic_regex, self._patterns, self._image),
                subscription_changed,
                self.group.is_partition_owned,
            ),
        )
        if after != member:
            self.changes.append(consumer_records.make_current_assignment_record(self.group.group_id, after))
        return after

    # --- the end ----------------------------------------------------------------------------------

    def append_changes(self) -> None:
        """Append the records of the update, and apply them to the group. Raises KafkaError, and nothing has changed."""
        group, commits = self.group, self._cluster.commits
        group.append_changes(self.changes, self.replaced)
        group.looked_at_commit = commits
        if self._resolves or group.resolved_commit != commits:
            resolve_subscribed_patterns_soon(group)


def find_preferred_assignor(members: Iterable[ConsumerMember], available_assignors: Sequence[str]) -> str:
    """Return the assignor that most members ask for; the first available one if nobody asks."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in available_assignors)
    return max(available_assignors, key=lambda name: votes[name])


# --- patterns -----------------------------------------------------------------------------------


def resolve_subscribed_patterns_soon(group: ConsumerGroupState) -> None:
    """Match the group's patterns with the topics in a later turn of the loop, unless that goes on already."""
    cluster = group.context.cluster
    if not collect_subscribed_patterns(group.members.values()):
        group.resolved_commit = cluster.commits
    elif not group.is_resolving and (group.last_caller is not None or cluster.authorizer is None):
        group.is_resolving = True
        cluster.clock.call_later(0, lambda: run_steps_in_slices(cluster.clock, _resolve_subscribed_patterns(group)))


def _resolve_subscribed_patterns(group: ConsumerGroupState) -> Steps[None]:
    """Match the group's patterns with the topics, and record the result."""
    context = group.context
    seen_commit, names = context.cluster.commits, list(context.cluster.image.topics)
    patterns = collect_subscribed_patterns(group.members.values())
    topics_by_pattern: dict[str, frozenset[str]] = {}
    try:
        for pattern in sorted(patterns):
            topics_by_pattern[pattern] = yield from _find_topics_matching_pattern(group, pattern, names)
    finally:
        group.is_resolving = False
    if context.groups.get(group.group_id) is not group:
        return  # it was deleted or replaced meanwhile
    wanted = collect_subscribed_patterns(group.members.values())
    update = ConsumerGroupUpdate(group)
    update.record_pattern_topics(
        {pattern: topics for pattern, topics in topics_by_pattern.items() if pattern in wanted}
    )
    group.resolved_commit = seen_commit
    try:
        update.append_changes()
    except KafkaError as error:
        log.error("group %s: the topics of its patterns cannot be recorded: %s", group.group_id, error)
        group.resolved_commit = seen_commit - 1  # so that the next heartbeat begins this again
        return
    if wanted - patterns:
        resolve_subscribed_patterns_soon(group)


def _find_topics_matching_pattern(
    group: ConsumerGroupState, pattern: str, names: Iterable[str]
) -> Steps[frozenset[str]]:
    """Return the topics that match a pattern; its previous ones, if matching takes too long."""
    try:
        topics = yield from Pattern(pattern).select_matching_names(names)
        return (yield from _filter_describable_topics(group, topics))
    except InvalidPattern as error:
        known = group.patterns.get(pattern)
        log.warning("group %s: %s, %s. It keeps the topics that it had.", group.group_id, pattern, error)
        return frozenset() if known is None else known.topics


def _filter_describable_topics(group: ConsumerGroupState, topics: frozenset[str]) -> Steps[frozenset[str]]:
    """Return those of the topics that the client of the group's last request may describe."""
    authorizer, caller = group.context.cluster.authorizer, group.last_caller
    if authorizer is None or caller is None:
        return topics
    allowed = []
    for portion in split_into_portions(list(topics)):
        allowed += [
            name
            for name in portion
            if authorizer.allows_operation(caller.principal, caller.address, DESCRIBE_TOPIC, name)
        ]
        yield
    return frozenset(allowed)
