"""The target topics of a replay. Missing ones are created; unsuitable ones are refused or cause a warning."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.topics import CreateTopicsRequest

# For topics that are created: archived timestamps are kept, and retention must not delete old records.
CONFIGS: Final = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
_TOPIC_RESOURCE: Final = 2
_TIMEOUT_MS: Final = 30_000
_BROKERS_CHOICE: Final = -1  # of the replication factor; from Kafka 2.4 on


class Needed(NamedTuple):
    """What an archived topic needs: a number of partitions, and retention of records of this time (ms; None: no
    record).
    """

    partitions: int
    oldest_ms: int | None


class Prepared(NamedTuple):
    """The topics that were created, and warnings about existing ones."""

    made: list[str]
    remarks: list[str]


def prepare_topics(
    client: Client, needed: Mapping[str, Needed], configs: Mapping[str, str] | None = None, any_count: bool = False
) -> Prepared:
    """Create the missing topics. An existing topic may have fewer partitions only with `any_count`.

    Raise `OptionError` if a topic has too few partitions, or replaces timestamps by the time of the append. Raise
    `ClientError`.
    """
    found = _partitions(client, needed)
    for topic, count in found.items():
        if not any_count and count < needed[topic].partitions:
            raise OptionError(f"topic {topic} has {count} partitions, and the archive has {needed[topic].partitions}")
    remarks = [remark for topic in found for remark in _remarks(client, topic, needed[topic].oldest_ms)]
    made = [topic for topic in needed if topic not in found]
    for topic in made:
        _create(client, topic, needed[topic].partitions, CONFIGS | dict(configs or {}))
    return Prepared(made, remarks)


def _partitions(client: Client, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic that exists."""
    answer = client.retry(lambda: client.metadata(topics))
    found = {}
    for topic in answer.topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        client.check(topic.error_code, f"topic {topic.name}")
        found[topic.name] = len(topic.partitions)
    return found


def _create(client: Client, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    of_topic = CreateTopicsRequest.CreatableTopic
    settings = [of_topic.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    wanted = of_topic(
        name=topic, num_partitions=partitions, replication_factor=_BROKERS_CHOICE, assignments=[], configs=settings
    )
    answer = client.request(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS), client.controller())
    for each in answer.topics:
        client.check(each.error_code, f"creating topic {topic}", message=each.error_message)


def _remarks(client: Client, topic: str, oldest_ms: int | None) -> list[str]:
    """Return warnings about what an existing topic's configs would do to old records. Raise `OptionError`."""
    configs = _configs(client, topic)
    if configs.get("message.timestamp.type") == "LogAppendTime":
        raise OptionError(f"topic {topic} has message.timestamp.type=LogAppendTime: archived times would be lost")
    retention_ms = int(configs.get("retention.ms") or -1)
    old = oldest_ms is not None and time.time() * 1000 - oldest_ms > retention_ms >= 0
    if old and "delete" in configs.get("cleanup.policy", "delete"):
        return [f"topic {topic} has retention.ms={retention_ms}: the broker deletes archived records that are older"]
    return []


def _configs(client: Client, topic: str) -> dict[str, str]:
    """Return the visible configs of a topic; none if the client may not describe them."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    answer: Any = client.request(DescribeConfigsRequest(resources=[resource]))
    for result in answer.results:
        if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return {}
        if result.error_code != ErrorCode.NONE:
            raise ClientError(f"{client.bootstrap_servers}: configs of topic {topic}: {result.error_message}")
        return {config.name: config.value or "" for config in result.configs}
    return {}
