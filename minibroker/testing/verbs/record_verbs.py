"""The methods for topics and records: write records as a client would, and read them with all details of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record as StoredRecord
from minibroker.quantities import Duration
from minibroker.suggestions import format_suggestion_of_similar_name
from minibroker.testing.embedded.given_settings import format_setting
from minibroker.testing.loops import blocking, immediate, make_coroutine_of_blocking_verb
from minibroker.testing.seen.log_reading import (
    Record,
    describe_records,
    get_upper_bound_of_records,
    iterate_records,
    list_local_partitions,
)
from minibroker.testing.seen.waiting import (
    DEFAULT_SILENCE,
    DEFAULT_TIMEOUT,
    Expired,
    describe_missing,
    format_count_with_were,
    format_there_are,
)
from minibroker.testing.verbs.own_requests import execute_request, get_any_node, raise_if_error
from minibroker.testing.verbs.wait_verbs import WaitVerbs, list_topic_names

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker

FILL_RECORDS = 100  # in a batch, so that large values stay below max.message.bytes
VERSION_BY_NAME = 12  # of Produce; 13 names topics by their ids
Text = bytes | str | None
Headers = Mapping[str, Text] | Iterable[tuple[str, Text]]


def encode_text(text: Text) -> bytes | None:
    """Encode a text in UTF-8; return bytes and None as they are. Raises TypeError for other types."""
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"keys and values of records are text, bytes or None, not {text!r}")


def make_header_pairs(headers: Headers) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers in the form of a record. Raises TypeError."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((key, encode_text(value)) for key, value in pairs)


class RecordVerbs(WaitVerbs):
    """Topics and records. Each method raises KafkaError where a client would get an error."""

    @blocking
    async def create_topic(self, /, name: str, partitions: int | None = None, **config: object) -> None:
        """Create a topic. Its configs are keyword arguments, with underscores for dots: `retention_ms=1000`.

        Raises KafkaError as a client would get it: TOPIC_ALREADY_EXISTS, INVALID_CONFIG, ...
        """
        configs = {key.replace("_", "."): format_setting(value) for key, value in config.items()}
        _check_config_names(configs)
        await create_topic_in_cluster(self.running.cluster, name, partitions, configs)

    acreate_topic = make_coroutine_of_blocking_verb(create_topic)

    @blocking
    async def fill(self, source: Mapping[str, Any] | str | Path) -> None:
        """Create topics with records: {"orders": ["first", {"key": "k", "value": {"id": 2}}]}, or a file of them.

        The subjects of `_schemas` are registered: {"_schemas": {"orders-value": {"type": "record", ...}}}.
        The file is .yaml, .json or .jsonl. A topic that exists, and has no options here, gets more records. Raises
        FillError, OSError.
        """
        from minibroker.testing.verbs.filling import parse_new_topics

        for topic in parse_new_topics(source):
            if topic.schemas:
                for schema in topic.schemas:
                    await self.registry.aregister(*schema[:3], references=schema.references)
                continue
            there = topic.name in self.running.cluster.image.topics
            if not there or topic.partitions is not None or topic.config:
                await create_topic_in_cluster(self.running.cluster, topic.name, topic.partitions, topic.config)
            now_ms = self.moving_clock.wall_ms()
            for partition in sorted({record.partition for record in topic.records}):
                records = [each.make_record(now_ms) for each in topic.records if each.partition == partition]
                for start in range(0, len(records), FILL_RECORDS):
                    await _append_records(
                        self.running.cluster, topic.name, partition, records[start : start + FILL_RECORDS]
                    )

    afill = make_coroutine_of_blocking_verb(fill)

    @blocking
    async def produce(
        self,
        topic: str,
        *values: Text,
        key: Text = None,
        partition: int = 0,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record for each value to a partition, as one batch; return the first offset.

        A missing topic is created. `timestamp_ms` is the broker's time by default. Raises ValueError without a value,
        TypeError for a value that is neither text nor bytes, and KafkaError as a client would get it.
        """
        if not values:
            raise ValueError("there is nothing to produce")
        at_ms = self.moving_clock.wall_ms() if timestamp_ms is None else timestamp_ms
        pairs = make_header_pairs(headers)
        records = [StoredRecord(-1, at_ms, encode_text(key), encode_text(value), pairs) for value in values]
        return await _append_records(self.running.cluster, topic, partition, records)

    aproduce = make_coroutine_of_blocking_verb(produce)

    @immediate
    def records(self, topic: str, partition: int | None = None, *, decoded: bool = False) -> list[Any]:
        """Return all records of a topic, one partition after the other, those of open and aborted transactions too.

        Without the topic there are none. With `decoded`, each is a `DecodedRecord`, by the schemas of the registry.
        Raises KafkaError for a partition that the topic does not have, and ValueError for what cannot be decoded.
        """
        present = self.running.cluster.image.topics.get(topic)
        if present is not None and partition is not None and present.find_partition(partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {topic}-{partition}")
        stored = [
            record
            for each in list_local_partitions(self.running.cluster, topic)
            if partition is None or each.index == partition
            for record in iterate_records(each, 0)
        ]
        return self.registry.decode_records(stored) if decoded else stored

    @blocking
    async def expect(
        self,
        topic: str,
        count: int = 1,
        timeout: Duration = DEFAULT_TIMEOUT,
        *,
        committed: bool = True,
        decoded: bool = False,
    ) -> list[Any]:
        """Wait until the topic has `count` records, and return these, `decoded` as `records` does it.

        Records of open and aborted transactions count only if `committed` is False. Raises Expired, an AssertionError.
        """

        def find_records() -> list[Record]:
            if get_upper_bound_of_records(self.running.cluster, topic) < count:
                return []
            there_now = [each for each in self.records(topic) if each.counts or not committed]
            return there_now if len(there_now) >= count else []

        def describe_timeout() -> str:
            expected = f"{format_count_with_were(count, 'record')} expected in {topic}"
            if topic not in self.running.cluster.image.topics:
                return f"{expected}, and {describe_missing('topic', list_topic_names(self.running.cluster))}"
            there_now = self.records(topic)
            uncounted = sum(not each.counts for each in there_now) if committed else 0
            besides = f", besides {uncounted} of open or aborted transactions" if uncounted else ""
            return (
                f"{expected}, and {format_there_are(len(there_now) - uncounted)}{besides}{describe_records(there_now)}"
            )

        if count == 0:
            return []
        there_now = (await self.watch.wait_until(find_records, timeout, describe_timeout))[:count]
        return self.registry.decode_records(there_now) if decoded else there_now

    aexpect = make_coroutine_of_blocking_verb(expect)

    @blocking
    async def assert_nothing_produced(self, topic: str, during: Duration = DEFAULT_SILENCE) -> None:
        """Wait for a time. Raises AssertionError as soon as a record is appended to the topic."""
        cluster = self.running.cluster
        ends = {each.index: each.log.log_end_offset for each in list_local_partitions(cluster, topic)}

        def list_new_records() -> list[Record]:
            partitions = list_local_partitions(self.running.cluster, topic)
            return [new for each in partitions for new in iterate_records(each, ends.get(each.index, 0))]

        try:
            new = await self.watch.wait_until(list_new_records, during, lambda: "")
        except Expired:
            return
        raise AssertionError(
            f"no record was expected in {topic}, and {format_there_are(len(new))}{describe_records(new)}"
        )

    aassert_nothing_produced = make_coroutine_of_blocking_verb(assert_nothing_produced)


# --- requests of the test kit's own ---------------------------------------------------------------


def _check_config_names(configs: Mapping[str, str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for an unknown topic config or argument, with a similar name."""
    from minibroker.broker.configs.settings_table import TOPIC_SETTINGS

    for name in configs.keys() - TOPIC_SETTINGS.keys():
        known = ("partitions", *(each.replace(".", "_") for each in TOPIC_SETTINGS))
        meant = format_suggestion_of_similar_name(name.replace(".", "_"), known)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{meant}")


async def create_topic_in_cluster(
    cluster: Broker, topic: str, partitions: int | None, config: Mapping[str, str]
) -> None:
    """Create a topic. Raises KafkaError."""
    wanted = CreateTopicsRequest.CreatableTopic(
        name=topic,
        num_partitions=-1 if partitions is None else partitions,
        replication_factor=-1,
        configs=[
            CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name=name, value=value)
            for name, value in config.items()
        ],
    )
    answer = await execute_request(
        cluster, get_any_node(cluster), CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
    )
    created = answer.topics[0]
    raise_if_error(created.error_code, created.error_message or topic)


async def _append_records(cluster: Broker, topic: str, partition: int, records: list[StoredRecord]) -> int:
    """Append the records as one batch, to a topic that is created if need be; return the first offset.

    Raises KafkaError.
    """
    node = get_any_node(cluster)
    while topic not in cluster.image.topics and cluster.controller.is_topic_changing(topic):
        await asyncio.sleep(0)  # a client's request creates or deletes it
    if topic not in cluster.image.topics:
        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        created = await execute_request(cluster, node, MetadataRequest(topics=named, allow_auto_topic_creation=True))
        # As in Kafka, the answer to the request that creates a topic has an error.
        expected = {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        raise_if_error(created.topics[0].error_code, topic, expected if topic in cluster.image.topics else set())
    made = cluster.image.topics.get(topic)
    index = None if made is None else made.find_partition(partition)
    leader = node if index is None else cluster.nodes.get(index.leader_id, node)
    answer = await execute_request(cluster, leader, _make_produce_request(topic, partition, records), VERSION_BY_NAME)
    appended = answer.responses[0].partition_responses[0]
    raise_if_error(appended.error_code, appended.error_message or f"{topic}-{partition}")
    offset: int = appended.base_offset
    return offset


def _make_produce_request(topic: str, partition: int, records: list[StoredRecord]) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    batch = memoryview(build_batch(records))
    partitions = [data.PartitionProduceData(index=partition, records=batch)]
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data(name=topic, partition_data=partitions)])
