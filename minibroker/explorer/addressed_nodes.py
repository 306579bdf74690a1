"""The node to which a client would send a request: the leader of the partition that it names, or the coordinator."""

from __future__ import annotations

from contextlib import suppress
from struct import Struct
from typing import Final

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.testing.broker import Broker
from minibroker.testing.seen.exchange import read_request
from minibroker.testing.seen.subjects import GetTopicName, NamedSubjects, find_subjects

SIZE_BYTES: Final = 4
KEY_AND_VERSION: Final = Struct(">hh")
TO_LEADERS: Final = (ApiKey.PRODUCE,)  # also with a transactional id
TO_TRANSACTIONS: Final = (ApiKey.ADD_OFFSETS_TO_TXN,)  # also with a group
TO_ANY: Final = (ApiKey.FIND_COORDINATOR,)


def find_addressed_node(broker: Broker, frame: bytes, get_topic_name: GetTopicName) -> int | None:
    """Return the id of the node that a request is for: a leader or coordinator. None for any node, or if unreadable."""
    if len(frame) < SIZE_BYTES + KEY_AND_VERSION.size:
        return None
    number, version = KEY_AND_VERSION.unpack_from(frame, SIZE_BYTES)
    request = read_request(number, version, frame[SIZE_BYTES:])
    if request is None or number in TO_ANY:
        return None
    found = find_subjects(request, get_topic_name)
    node = (
        None if number in TO_LEADERS else _find_coordinator(broker, found, prefers_group=number not in TO_TRANSACTIONS)
    )
    return _find_leader(broker, found) if node is None else node


def _find_coordinator(broker: Broker, subjects: NamedSubjects, *, prefers_group: bool) -> int | None:
    """Return the id of the coordinator of the first group or transactional id, None if the request names none."""
    if subjects.groups and (prefers_group or not subjects.transactional_ids):
        return broker.coordinator(group=min(subjects.groups))
    return broker.coordinator(transactional_id=min(subjects.transactional_ids)) if subjects.transactional_ids else None


def _find_leader(broker: Broker, subjects: NamedSubjects) -> int | None:
    """Return the id of the leader of the first partition that exists, or None."""
    for topic, partitions in subjects.topics.items():
        for partition in partitions:
            with suppress(KafkaError):  # there is no such partition
                return broker.leader(topic, partition)
    return None
