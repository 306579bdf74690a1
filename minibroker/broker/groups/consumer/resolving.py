"""Finds the topics of patterns between heartbeats: one that brings a pattern is answered before they are known.

As in Kafka it is a later heartbeat that brings the topics. There may be many, so they are looked through in slices.
What follows from those that are found is decided in `updating`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minibroker.broker.groups.consumer import updating
from minibroker.broker.groups.consumer.patterns.program import Pattern
from minibroker.broker.groups.consumer.patterns.syntax import InvalidPattern
from minibroker.broker.groups.consumer.subscriptions import wanted_patterns
from minibroker.broker.requests.slices import in_slices
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.steps import Steps

if TYPE_CHECKING:
    from minibroker.broker.groups.consumer.group import ConsumerGroup

log = logging.getLogger("minibroker.groups")


def resolve_soon(group: ConsumerGroup) -> None:
    """Look for the topics of the group's patterns once the loop comes to it, unless that is going on."""
    cluster = group.context.cluster
    if not wanted_patterns(group.members.values()):
        group.resolved_commit = cluster.commits
    elif not group.is_resolving:
        group.is_resolving = True
        cluster.clock.call_later(0, lambda: in_slices(cluster, _nothing, _resolve(group), _nothing))


def _nothing(*_: None) -> None:
    """What is to be done is done by the steps themselves."""


def _resolve(group: ConsumerGroup) -> Steps[None]:
    context = group.context
    seen_commit, names = context.cluster.commits, list(context.cluster.image.topics)
    patterns = wanted_patterns(group.members.values())
    found: dict[str, frozenset[str]] = {}
    try:
        for pattern in sorted(patterns):
            found[pattern] = yield from _matching(group, pattern, names)
    finally:
        group.is_resolving = False
    if context.groups.get(group.group_id) is not group:
        return  # it was deleted meanwhile, or has gone over to the other protocol
    wanted = wanted_patterns(group.members.values())
    update = updating.Update(group)
    update.set_patterns({pattern: topics for pattern, topics in found.items() if pattern in wanted})
    group.resolved_commit = seen_commit
    try:
        update.commit()
    except KafkaError as error:
        log.error("group %s: the topics of its patterns cannot be recorded: %s", group.group_id, error)
        group.resolved_commit = seen_commit - 1  # the next heartbeat has them looked for again
        return
    if wanted - patterns:
        resolve_soon(group)


def _matching(group: ConsumerGroup, pattern: str, names: Iterable[str]) -> Steps[frozenset[str]]:
    """The topics of a pattern. If it takes too long among so many, it keeps those that it had."""
    try:
        topics = yield from Pattern(pattern).matching(names)
        return topics
    except InvalidPattern as error:
        known = group.patterns.get(pattern)
        log.warning("group %s: %s, %s. It keeps the topics that it had.", group.group_id, pattern, error)
        return frozenset() if known is None else known.topics
