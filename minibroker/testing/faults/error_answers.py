"""Answers with faults: rejected requests, errors that are put into other answers, and batches damaged on their way.

A fault of one partition leaves the others of the same request alone: its partition is taken out of the request
(`remove_partitions_from_request`), and its error is put into the answer to the rest (`add_errors_of_rule`).

A batch is damaged in one way, and the log keeps it intact. All damage but "crc" gets a valid checksum, if the format's
checksum covers the damaged field, so that the consumer fails at the damage and not at the checksum.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from minibroker.broker.requests.interceptors import Call
from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.fields import list_declared_fields
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.protocol.records.batch import COMPRESSION_MASK, HEADER_BYTES, MAGIC, BatchHeader, set_checksum
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.testing.faults.fault_matching import (
    applies_to_error_place,
    find_share_session,
    list_session_partitions,
    make_topic_name_getter,
)
from minibroker.testing.faults.rules import Corruption, FaultError, Rule
from minibroker.testing.seen.error_places import (
    ErrorPlace,
    choose_default_level,
    iterate_error_places,
    list_fields_with_error_places,
    make_error_answer,
)
from minibroker.testing.seen.subjects import (
    GetTopicName,
    find_partition_index,
    find_topic_name,
    iterate_items_of_value,
    list_struct_fields,
)

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_LENGTH_POSITION = 8
_CRC_POSITION = {0: 12, 1: 12, MAGIC: 17}
_ATTRIBUTES_POSITION = 22
_GZIP = 1
TOO_SHORT = 5  # bytes after the length field, fewer than any format's header
FAR = 1_000_000  # offsets
TopicAnswer = FetchResponse.FetchableTopicResponse
ShareTopicAnswer = ShareFetchResponse.ShareFetchableTopicResponse
FETCHES = (ApiKey.FETCH, ApiKey.SHARE_FETCH)


def corrupt_first_batch(data: bytes, corruption: Corruption) -> bytes:
    """Return `data`, batches of a Fetch answer, with the first batch damaged; unchanged without a whole batch."""
    found = list(iterate_batches_in_any_format(data))
    if not found:
        return data
    changed = bytearray(data)
    return bytes(_DAMAGES[corruption](changed, *found[0]))


def _corrupt_crc(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Change the stored checksum."""
    data[position + _CRC_POSITION[header.magic]] ^= 0xFF
    return data


def _corrupt_length(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Make the batch claim to be shorter than a header."""
    _INT32.pack_into(data, position + _LENGTH_POSITION, TOO_SHORT)
    return data


def _corrupt_codec(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Make the records claim to be gzip, and overwrite their beginning, so that they are not."""
    if header.magic != MAGIC:
        return _corrupt_crc(data, position, header)
    attributes = data[position + _ATTRIBUTES_POSITION]
    data[position + _ATTRIBUTES_POSITION] = attributes & ~COMPRESSION_MASK | _GZIP
    for at in range(position + HEADER_BYTES, min(position + HEADER_BYTES + 8, position + header.size_bytes)):
        data[at] = 0xFF
    set_checksum(data, position, header.size_bytes)
    return data


def _truncate_batch(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """End the answer in the middle of the batch."""
    return data[: position + header.size_bytes // 2]


def _corrupt_offsets(data: bytearray, position: int, header: BatchHeader) -> bytearray:
    """Send the batch twice: first with offsets far ahead, then, below them, with its own."""
    ahead = bytearray(data[position : position + header.size_bytes])
    _INT64.pack_into(ahead, 0, header.base_offset + FAR)  # no checksum covers it
    return data[:position] + ahead + data[position:]


_DAMAGES: Final[dict[Corruption, Callable[[bytearray, int, BatchHeader], bytearray]]] = {
    "crc": _corrupt_crc,
    "length": _corrupt_length,
    "codec": _corrupt_codec,
    "truncated": _truncate_batch,
    "offsets": _corrupt_offsets,
}


def refuse_request(call: Call, rule: Rule) -> Message:
    """Return an answer to the whole request, with the rule's error wherever it applies, and without data."""
    assert call.api_key is not None
    response = make_error_answer(call.request, get_response_class(call.api_key), call.context.version)
    set_errors(call, rule, response)
    return response


def set_errors(call: Call, rule: Rule, response: Message) -> None:
    """Set the rule's error where it applies. Raises FaultError if the API has no place for it."""
    assert rule.code is not None
    if call.api_key in FETCHES and rule.level != "top":
        _add_session_partitions_with_errors(call, rule, response)
    places = list(iterate_error_places(response, make_topic_name_getter(call)))
    level = rule.level or choose_default_level(places)
    for place in places:
        if place.level == level and applies_to_error_place(rule, place):
            place.set_code(rule.code)
    if not any(place.level == level for place in places) and level == "top":
        raise FaultError(f"{type(response).__name__} has no error code at the top")


def _add_session_partitions_with_errors(call: Call, rule: Rule, response: Any) -> None:
    """Add the partitions that get errors to the answer of an incremental fetch, which has only those with news."""
    ids = call.context.cluster.image.topics
    named = {(place.topic, place.partition) for place in iterate_error_places(response, make_topic_name_getter(call))}
    for topic, partition in list_session_partitions(call):
        meant = ErrorPlace("partition", topic, partition, None, "")
        if (topic, partition) in named or topic not in ids or not applies_to_error_place(rule, meant):
            continue
        response.responses.append(_make_answer_without_records(response, topic, ids[topic].topic_id, partition))


def _make_answer_without_records(response: Message, topic: str, topic_id: bytes, partition: int) -> Any:
    """Return the answer for a partition without records."""
    if isinstance(response, ShareFetchResponse):
        share_answer = ShareTopicAnswer.PartitionData(partition_index=partition, records=b"")
        return ShareTopicAnswer(topic_id=topic_id, partitions=[share_answer])
    answer = TopicAnswer.PartitionData(partition_index=partition, high_watermark=-1, records=b"")
    return TopicAnswer(topic=topic, topic_id=topic_id, partitions=[answer])


def remove_wait_of_fetch(request: Any) -> None:
    """Make a Fetch return at once: an error must not wait for records."""
    request.max_wait_ms = 0


def set_throttle(rule: Rule, response: Any) -> None:
    """Set the throttle time, in versions that have it."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(response.throttle_time_ms, rule.throttle_ms)


def corrupt_batches(call: Call, rule: Rule, response: Any) -> None:
    """Damage the first batch of each partition to which the rule applies."""

    assert rule.corrupt is not None
    name_of = make_topic_name_getter(call)
    for topic in getattr(response, "responses", ()):
        name = find_topic_name(topic, name_of)
        for partition in topic.partitions:
            place = ErrorPlace("partition", name, partition.partition_index, partition, "error_code")
            data = _read_record_bytes(partition.records) if applies_to_error_place(rule, place) else b""
            if data:
                partition.records = corrupt_first_batch(data, rule.corrupt)


def _read_record_bytes(records: Any) -> bytes:
    """Return the bytes of records, which may be in a file."""
    if records is None:
        return b""
    return bytes(records.read()) if hasattr(records, "read") else bytes(records)


def remove_partitions_from_request(request: Any, rule: Rule, get_topic_name: GetTopicName) -> bool:
    """Take the rule's topic or partition out of the request; return whether it was in and others are left.

    A rule without topic and partition is about the whole request.
    """
    if rule.topic is None and rule.partition is None:
        return False
    left = taken = False
    for name, about_topics in list_struct_fields(request.__class__):
        topics = getattr(request, name)
        if not about_topics or not isinstance(topics, list):
            continue
        kept = [topic for topic in topics if _remove_matching_partitions(topic, rule, get_topic_name)]
        taken = taken or len(kept) < len(topics) or _has_topic_of_rule(topics, rule, get_topic_name)
        left = left or bool(kept)
        setattr(request, name, kept)
    return left and taken


def _has_topic_of_rule(topics: list[Any], rule: Rule, get_topic_name: GetTopicName) -> bool:
    """Return whether the rule's topic is among these, or the rule has none."""
    return any(rule.topic in (None, find_topic_name(topic, get_topic_name)) for topic in topics)


def _remove_matching_partitions(topic: Any, rule: Rule, get_topic_name: GetTopicName) -> bool:
    """Take the rule's partitions out of the topic's struct; return whether others stay."""
    if rule.topic is not None and find_topic_name(topic, get_topic_name) != rule.topic:
        return True
    if rule.partition is None:
        return False
    stays = False
    for field in list_declared_fields(topic.__class__):
        if field.name.startswith("partition") and field.kind.item is not None:
            kept = [
                value
                for value in iterate_items_of_value(getattr(topic, field.name))
                if find_partition_index(value) != rule.partition
            ]
            setattr(topic, field.name, kept)
            stays = stays or bool(kept)
    return stays


def remove_partitions_from_share_request(call: Call, rule: Rule) -> Callable[[], None]:
    """Take the rule's partitions out of a share request and its session. Return a function that puts them back there.

    The rest takes effect, so that the session goes on. A ShareAcknowledge leaves the session as it is.
    """
    from minibroker.broker.share.share_partitions import FIRST_EPOCH

    request: Any = call.request
    name_of = make_topic_name_getter(call)

    def is_partition_of_rule(topic_id: bytes, index: int) -> bool:
        return applies_to_error_place(rule, ErrorPlace("partition", name_of(topic_id), index, None, ""))

    named = [(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions]
    for topic in request.topics:
        topic.partitions = [
            each for each in topic.partitions if not is_partition_of_rule(topic.topic_id, each.partition_index)
        ]
    if call.api_key != ApiKey.SHARE_FETCH:
        return lambda: None
    session = find_share_session(call)
    if session is not None and request.share_session_epoch > FIRST_EPOCH:  # else the request begins another, or ends it
        named += session.wanted
        session.wanted = {wanted: name for wanted, name in session.wanted.items() if not is_partition_of_rule(*wanted)}
    forgotten = {(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions}
    taken = {each: name_of(each[0]) for each in named if is_partition_of_rule(*each) and each not in forgotten}

    def restore_partitions() -> None:
        session = find_share_session(call)  # the request may have begun it
        if session is not None:
            session.wanted |= taken

    return restore_partitions


def add_errors_of_rule(response: Message, errors: Message, rule: Rule, get_topic_name: GetTopicName) -> None:
    """Add to `response`, the answer to the rest, the errors of the rule from `errors`, the answer to all."""
    for name, about_topics in list_fields_with_error_places(errors.__class__):
        if about_topics:
            for topic in iterate_items_of_value(getattr(errors, name)):
                _add_topic_error(getattr(response, name), topic, rule, get_topic_name)


def _add_topic_error(topics: list[Any], topic: Any, rule: Rule, get_topic_name: GetTopicName) -> None:
    """Add the rule's errors of a topic to the topics of an answer, in the place of what it says there."""
    named = find_topic_name(topic, get_topic_name)
    if rule.topic is not None and named != rule.topic:
        return
    lists = [name for name, _ in list_fields_with_error_places(topic.__class__)]
    if rule.partition is not None:
        for name in lists:
            meant = [
                value
                for value in iterate_items_of_value(getattr(topic, name))
                if find_partition_index(value) == rule.partition
            ]
            setattr(topic, name, meant)
    there = next((other for other in topics if find_topic_name(other, get_topic_name) == named), None)
    if there is None:
        topics.append(topic)
        return
    for name in lists:
        errors = getattr(topic, name)
        others = [
            value
            for value in getattr(there, name)
            if find_partition_index(value) not in map(find_partition_index, errors)
        ]
        setattr(there, name, [*others, *errors])
