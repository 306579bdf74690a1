"""What a request changed, in sentences: from the request and its answer, so that they hold for any broker.

An effect is its text and the page's address of what it is about. What the answer refuses is no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.legible import make_legible
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from minibroker.quantities import format_count
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.subjects import GetTopicName, find_topic_name

MOST: Final = 20

Effect = dict[str, str]
Effects = Iterator[Effect]


def describe_effects(exchange: Exchange, get_topic_name: GetTopicName) -> list[Effect]:
    """Return what the request changed, `MOST` at most."""
    read = _EFFECTS.get(exchange.api_key)
    request, answer = (exchange.request, exchange.answer) if read is not None else (None, None)
    if read is None or request is None or answer is None:
        return []
    return list(islice(read(request, answer, get_topic_name), MOST))


def _make_effect(text: str, view: str = "", *names: str) -> Effect:
    """Return an effect for the page: its text, and if `view` is given, a link to what `names` are in that view."""
    place = "/".join(["", view, *(quote(name, safe="") for name in names)])
    return {"text": make_legible(text), "place": place if view else ""}


def _make_partition_effect(text: str, topic: str, partition: int) -> Effect:
    """Return an effect with a link to the view of a partition."""
    return _make_effect(text, "topics", topic, str(partition))


def _format_partitions(topic: str, partitions: Iterable[int]) -> str:
    return ", ".join(f"{topic}-{index}" for index in sorted(partitions))


# --- topics ---


def _describe_produced_records(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    sent = {
        (find_topic_name(topic, get_topic_name), each.index): each
        for topic in request.topic_data
        for each in topic.partition_data
    }
    for topic in answer.responses:
        name = find_topic_name(topic, get_topic_name)
        for each in topic.partition_responses:
            if name is not None and not each.error_code and (name, each.index) in sent:
                count = _count_records(sent[name, each.index].records)
                text = (
                    f"appended {format_count(count, 'record')} to {name}-{each.index} from offset {each.base_offset} on"
                )
                yield _make_partition_effect(text, name, each.index)


def _count_records(records: Any) -> int:
    with suppress(KafkaError):
        return sum(
            header.last_offset - header.base_offset + 1 for _, header in iterate_batches_in_any_format(records or b"")
        )
    return 0


def _describe_created_topics(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    asked = {topic.name: topic for topic in request.topics}
    for topic in answer.topics:
        if not topic.error_code and not request.validate_only:
            partitions = topic.num_partitions if topic.num_partitions > 0 else asked[topic.name].num_partitions
            said = f" with {format_count(partitions, 'partition')}" if partitions > 0 else ""
            yield _make_effect(f"created topic {topic.name}{said}", "topics", topic.name)


def _describe_deleted_topics(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    yield from (_make_effect(f"deleted topic {topic.name}") for topic in answer.responses if not topic.error_code)


def _describe_added_partitions(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    done = {topic.name for topic in answer.results if not topic.error_code and not request.validate_only}
    for topic in request.topics:
        if topic.name in done:
            yield _make_effect(
                f"topic {topic.name} has {format_count(topic.count, 'partition')} now", "topics", topic.name
            )


def _describe_deleted_records(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    for topic in answer.topics:
        for each in topic.partitions:
            if not each.error_code:
                text = f"{topic.name}-{each.partition_index} begins at offset {each.low_watermark} now"
                yield _make_partition_effect(text, topic.name, each.partition_index)


def _describe_changed_configs(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    done = {(each.resource_type, each.resource_name) for each in answer.responses if not each.error_code}
    for resource in request.resources:
        if (resource.resource_type, resource.resource_name) in done and not request.validate_only:
            for config in resource.configs:
                now = "its default" if config.value is None else config.value
                yield _make_effect(f"set {config.name} of {resource.resource_name or 'all brokers'} to {now}")


# --- groups ---


def _describe_effect_of_join_group(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if not answer.error_code:
        is_leader = " as its leader" if answer.leader == answer.member_id else ""
        text = f"{answer.member_id} is in generation {answer.generation_id} of {request.group_id}{is_leader}"
        yield _make_effect(text, "groups", request.group_id)
    elif answer.member_id and not request.member_id:
        yield _make_effect(
            f"{answer.member_id} is its member id, with which it must join again", "groups", request.group_id
        )


def _describe_effect_of_sync_group(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if not answer.error_code and request.assignments:
        text = f"assigned {format_count(len(request.assignments), 'member')} of {request.group_id}"
        yield _make_effect(text, "groups", request.group_id)


def _describe_effect_of_leave_group(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if not answer.error_code:
        members = [each.member_id for each in answer.members if not each.error_code] or [request.member_id]
        yield _make_effect(f"{', '.join(members)} left {request.group_id}", "groups", request.group_id)


def _describe_effect_of_heartbeat(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if answer.error_code:
        return
    group = request.group_id
    if request.member_epoch <= -1:
        yield _make_effect(f"{request.member_id} left {group}", "groups", group)
    elif answer.member_epoch != request.member_epoch:
        yield _make_effect(
            f"{request.member_id or answer.member_id} is in epoch {answer.member_epoch}", "groups", group
        )
    if answer.assignment is not None:
        assigned = [
            (find_topic_name(each, get_topic_name) or "?", each.partitions)
            for each in answer.assignment.topic_partitions
        ]
        said = ", ".join(_format_partitions(name, partitions) for name, partitions in assigned) or "nothing"
        yield _make_effect(f"it is assigned {said}", "groups", group)


def _describe_effect_of_offset_commit(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    done = {
        (find_topic_name(topic, get_topic_name), each.partition_index)
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code
    }
    pending = " once the transaction commits" if getattr(request, "transactional_id", None) else ""
    for topic in request.topics:
        name = find_topic_name(topic, get_topic_name)
        for each in topic.partitions:
            if (name, each.partition_index) in done:
                text = f"{request.group_id} has committed offset {each.committed_offset} of {name}-"
                yield _make_effect(f"{text}{each.partition_index}{pending}", "groups", request.group_id)


# --- transactions ---


def _describe_effect_of_init_producer_id(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if not answer.error_code:
        who = f"{request.transactional_id} has" if request.transactional_id else "a producer has"
        view = ("transactions", request.transactional_id) if request.transactional_id else ("",)
        yield _make_effect(f"{who} producer id {answer.producer_id} and epoch {answer.producer_epoch}", *view)


def _describe_partitions_added_to_transaction(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    results = [(request.v3_and_below_transactional_id, answer.results_by_topic_v3_and_below)]
    results += [(each.transactional_id, each.topic_results) for each in answer.results_by_transaction]
    checked = {each.transactional_id for each in request.transactions if each.verify_only}
    for transactional_id, topics in results:
        for topic in topics if transactional_id not in checked else ():
            added = [each.partition_index for each in topic.results_by_partition if not each.partition_error_code]
            if added:
                verb = "is" if len(added) == 1 else "are"
                text = f"{_format_partitions(topic.name, added)} {verb} in the transaction of {transactional_id}"
                yield _make_effect(text, "transactions", transactional_id)


def _describe_effect_of_end_txn(request: Any, answer: Any, get_topic_name: GetTopicName) -> Effects:
    if not answer.error_code:
        verb = "committed" if request.committed else "aborted"
        text = f"{verb} the transaction of {request.transactional_id}"
        yield _make_effect(text, "transactions", request.transactional_id)


_EFFECTS: Final[dict[ApiKey, Callable[[Any, Any, GetTopicName], Effects]]] = {
    ApiKey.PRODUCE: _describe_produced_records,
    ApiKey.CREATE_TOPICS: _describe_created_topics,
    ApiKey.DELETE_TOPICS: _describe_deleted_topics,
    ApiKey.CREATE_PARTITIONS: _describe_added_partitions,
    ApiKey.DELETE_RECORDS: _describe_deleted_records,
    ApiKey.ALTER_CONFIGS: _describe_changed_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _describe_changed_configs,
    ApiKey.JOIN_GROUP: _describe_effect_of_join_group,
    ApiKey.SYNC_GROUP: _describe_effect_of_sync_group,
    ApiKey.LEAVE_GROUP: _describe_effect_of_leave_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _describe_effect_of_heartbeat,
    ApiKey.OFFSET_COMMIT: _describe_effect_of_offset_commit,
    ApiKey.TXN_OFFSET_COMMIT: _describe_effect_of_offset_commit,
    ApiKey.INIT_PRODUCER_ID: _describe_effect_of_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _describe_partitions_added_to_transaction,
    ApiKey.END_TXN: _describe_effect_of_end_txn,
}
