"""Which topics the members of a classic group read, as far as the coordinator can tell.

It looks into what consumers tell their leader for nothing else; other members' metadata is opaque.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.primitives import MalformedMessage

if TYPE_CHECKING:
    from minibroker.broker.groups.classic.group import ClassicGroup

log = logging.getLogger("minibroker.groups")

CONSUMER_PROTOCOL = "consumer"
VERSION_BYTES = 2
COMMON_VERSION = 0  # every version of a subscription begins with the fields of this one


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The topics of all members; None if they are no consumers, or their metadata cannot be read."""
    if group.kind != CONSUMER_PROTOCOL:
        return None
    if not group.members:
        return frozenset()
    if group.protocol is None:
        return None
    try:
        return frozenset(
            topic for member in group.members.values() for topic in _topics(member.metadata(group.protocol))
        )
    except MalformedMessage as error:
        log.warning("what the members of group %s read is not known: %s", group.group_id, error)
        return None


def _topics(metadata: bytes) -> list[str]:
    return ConsumerProtocolSubscription.decode_from(metadata, COMMON_VERSION, VERSION_BYTES)[0].topics
