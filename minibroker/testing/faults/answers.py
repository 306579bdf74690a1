"""Answers with errors in them: those of a request that is not let through, and those of one that was.

Which places an answer has is in `places`; whether a request is let through is decided in `engine`.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.requests.interceptors import Call
from minibroker.protocol.apis import ApiKey, response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.testing.faults.corrupting import corrupted
from minibroker.testing.faults.matching import is_meant, names_by, session_partitions
from minibroker.testing.faults.places import Place, deepest_level, error_answer, places_in
from minibroker.testing.faults.rules import FaultError, Rule

TopicAnswer = FetchResponse.FetchableTopicResponse
PartitionAnswer = TopicAnswer.PartitionData


def refused(call: Call, rule: Rule) -> Message:
    """The answer to the whole request, with the rule's error wherever it is meant, and nothing else told."""
    assert call.api_key is not None
    response = error_answer(call.request, response_class(call.api_key), call.context.version, lambda struct: None)
    set_errors(call, rule, response)
    return response


def set_errors(call: Call, rule: Rule, response: Message) -> None:
    """Put the rule's error where it is meant. Raises FaultError if the API has no place for it."""
    assert rule.error is not None
    if call.api_key == ApiKey.FETCH and rule.level != "top":
        _name_session_partitions(call, rule, response)
    places = list(places_in(response, names_by(call)))
    level = rule.level or deepest_level(places)
    for place in places:
        if place.level == level and is_meant(rule, place):
            place.set(rule.error)
    if not any(place.level == level for place in places) and level == "top":
        raise FaultError(f"{type(response).__name__} has no error code at the top")


def _name_session_partitions(call: Call, rule: Rule, response: Any) -> None:
    """Name the partitions that are to have errors in an incremental Fetch's answer, which has only those with news."""
    ids = call.context.cluster.image.topics
    named = {(place.topic, place.partition) for place in places_in(response, names_by(call))}
    for topic, partition in session_partitions(call):
        meant = Place("partition", topic, partition, None, "")
        if (topic, partition) in named or topic not in ids or not is_meant(rule, meant):
            continue
        answer = PartitionAnswer(partition_index=partition, high_watermark=-1, records=b"")
        response.responses.append(TopicAnswer(topic=topic, topic_id=ids[topic].topic_id, partitions=[answer]))


def without_wait(request: Any) -> None:
    """Make a Fetch be answered at once: it has no effect that an error could come before."""
    request.max_wait_ms = 0


def set_throttle(rule: Rule, response: Any) -> None:
    """Tell the client to be silent for as long, in the versions that can."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(response.throttle_time_ms, rule.throttle_ms)


def corrupt_batches(call: Call, rule: Rule, response: Any) -> bool:
    """Damage the first batch of each partition that is meant; whether there was any."""
    assert rule.corrupt is not None
    done = False
    name_of = names_by(call)
    for topic in getattr(response, "responses", ()):
        name = topic.topic or name_of(topic.topic_id)
        for partition in topic.partitions:
            place = Place("partition", name, partition.partition_index, partition, "error_code")
            data = _bytes_of(partition.records) if is_meant(rule, place) else b""
            if data:
                partition.records = corrupted(data, rule.corrupt)
                done = True
    return done


def _bytes_of(records: Any) -> bytes:
    """The bytes of records, which may lie in a file."""
    if records is None:
        return b""
    return bytes(records.read()) if hasattr(records, "read") else bytes(records)
