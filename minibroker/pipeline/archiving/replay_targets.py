"""The target topics of a replay. Missing ones are created; unsuitable ones are refused or cause a warning."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple

from minibroker.pipeline.archiving.archived_topics import describe_configs
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.log_source import OptionError
from minibroker.protocol.messages.topics import CreateTopicsRequest

# For topics that are created: archived timestamps are kept, and retention must not delete old records.
CONFIGS: Final = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
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
    client: Client,
    needed: Mapping[str, Needed],
    configs: Mapping[str, str] | None = None,
    any_count: bool = False,
    archived: Mapping[str, Mapping[str, str]] | None = None,
) -> Prepared:
    """Create the missing topics. An existing topic may have fewer partitions only with `any_count`.

    New topics get their `archived` configs, by topic, and `configs`, which override them; an empty value leaves one
    out. Raises `OptionError` if a topic has too few partitions, or replaces timestamps by the time of the append, and
    `ClientError`.
    """
    archived = archived or {}
    found = Counter(partition.topic for partition in client.partitions(needed, missing_ok=True))
    for topic, count in found.items():
        if not any_count and count < needed[topic].partitions:
            raise OptionError(f"topic {topic} has {count} partitions, and the archive has {needed[topic].partitions}")
    remarks = [
        remark
        for topic in found
        for remark in _list_remarks(client, topic, needed[topic].oldest_ms, archived.get(topic, {}))
    ]
    made = [topic for topic in needed if topic not in found]
    for topic in made:
        wanted = {**CONFIGS, **archived.get(topic, {}), **(configs or {})}
        set_configs = {name: value for name, value in wanted.items() if value}
        _create_topic(client, topic, needed[topic].partitions, set_configs)
    return Prepared(made, remarks)


def _create_topic(client: Client, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    of_topic = CreateTopicsRequest.CreatableTopic
    settings = [of_topic.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    wanted = of_topic(
        name=topic, num_partitions=partitions, replication_factor=_BROKERS_CHOICE, assignments=[], configs=settings
    )
    answer = client.request(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS), client.controller())
    for each in answer.topics:
        client.check(each.error_code, f"creating topic {topic}", message=each.error_message)


def _list_remarks(client: Client, topic: str, oldest_ms: int | None, archived: Mapping[str, str]) -> list[str]:
    """Return warnings about what an existing topic's configs do to old records, and do not do. Raises `OptionError`."""
    configs = describe_configs(client, topic)
    if configs.get("message.timestamp.type") == "LogAppendTime":
        raise OptionError(f"topic {topic} has message.timestamp.type=LogAppendTime: archived times would be lost")
    found = [
        f"topic {topic} has {name}={configs[name]}, the archived one had {value}"
        for name, value in archived.items()
        if name in configs and configs[name] != value
    ]
    retention_ms = int(configs.get("retention.ms") or -1)
    old = oldest_ms is not None and time.time() * 1000 - oldest_ms > retention_ms >= 0
    if old and "delete" in configs.get("cleanup.policy", "delete"):
        found.append(
            f"topic {topic} has retention.ms={retention_ms}: the broker deletes archived records that are older"
        )
    return found
