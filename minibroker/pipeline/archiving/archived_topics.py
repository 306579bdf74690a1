"""The identities and configs of archived topics: read from a log directory or a broker.

A topic's identity is its id, so that a deleted topic or one of another cluster is not taken for one with the same name.
Without ids (Kafka before 2.8), it is the directory's path or the cluster's id. Only configs that were set for a topic
travel to a replay, which creates missing topics. Defaults are those of the brokers that get the topic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.brokers.client import Client
from minibroker.pipeline.directory.cluster_metadata import Configs, read_metadata
from minibroker.pipeline.directory.finding import find_logs, parse_log_paths
from minibroker.pipeline.directory.reading_disk import DISK
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import ReadOptions
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.metadata_records import TOPIC_RESOURCE
from minibroker.protocol.messages.topics import CreateTopicsRequest
from minibroker.protocol.primitives import format_uuid
from minibroker.storage.checkpoints.checkpoint_texts import PARTITION_METADATA, MalformedCheckpoint, parse_topic_id

# A replay does not set these: they would delete or refuse archived records, or name replicas of the old cluster.
LEFT_BEHIND: Final = frozenset(
    (
        "retention.ms",
        "retention.bytes",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.storage.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.difference.max.ms",
        "min.insync.replicas",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    )
)
NO_ID: Final = bytes(16)
_SET_FOR_THE_TOPIC: Final = 1  # the source of a config


def find_topic_ids(options: ReadOptions, topics: Iterable[str]) -> dict[str, str]:
    """Return the topic id of each of a reader's topics, as text. Raises `OptionError`, `OSError` and `ClientError`."""
    wanted, found = sorted(set(topics)), {}
    if options.path is None:
        with _make_client(options) as client:
            answer = client.fetch_metadata(wanted)
            where = f"the one of cluster {answer.cluster_id or client.bootstrap_servers}"
        return {topic.name: _format_topic_id(topic.topic_id, where) for topic in answer.topics}
    for partition, log in sorted(find_logs(parse_log_paths(options.path)).items()):
        if partition.topic in wanted and partition.topic not in found:
            found[partition.topic] = _format_topic_id(
                _read_topic_id(f"{log.path}/{PARTITION_METADATA}"), f"the one in {log.log_directory}"
            )
    return found


def _read_topic_id(path: str) -> bytes:
    try:
        return parse_topic_id(DISK.read_whole(path))
    except FileNotFoundError:
        return NO_ID
    except MalformedCheckpoint as error:
        raise OptionError(f"{path} is malformed: {error}") from None


def _format_topic_id(topic_id: bytes, default: str) -> str:
    """Return the id as Kafka writes it, or `default` if there is none."""
    return format_uuid(topic_id) if topic_id != NO_ID else default


def _make_client(options: ReadOptions) -> Client:
    return Client(options.bootstrap_servers or "", options.client_settings)


def find_topic_configs(options: ReadOptions, topics: Iterable[str]) -> Configs:
    """Return the configs that were set for each of a reader's topics. Raises `OptionError`, `OSError`, `ClientError`.

    A log directory without a metadata log has none.
    """
    wanted = sorted(set(topics))
    if options.path is None:
        with _make_client(options) as client:
            return {topic: configs for topic in wanted if (configs := describe_configs(client, topic, only_set=True))}
    found: Configs = {}
    for root in {log.log_directory for log in find_logs(parse_log_paths(options.path)).values()}:
        known = read_metadata(root).configs
        found.update({topic: known[topic] for topic in wanted if known.get(topic)})
    return found


def describe_configs(client: Client, topic: str, *, only_set: bool = False) -> dict[str, str]:
    """Return the visible configs of a topic, or only those set for it; none if the client may not describe them.

    Raises `ClientError`.
    """
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
    )
    answer: Any = client.request(DescribeConfigsRequest(resources=[resource]), lowest=1 if only_set else 0)
    (result,) = answer.results
    if result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return {}
    if result.error_code != ErrorCode.NONE:
        raise ClientError(f"{client.bootstrap_servers}: configs of topic {topic}: {result.error_message}")
    rows = result.configs
    if only_set:
        rows = [row for row in rows if row.config_source == _SET_FOR_THE_TOPIC and row.value is not None]
    return {row.name: row.value or "" for row in rows}


def choose_target_configs(
    configs: Mapping[str, Mapping[str, str]], targets: Mapping[str, str], topics: Collection[str]
) -> Configs:
    """Return the archived configs for each target topic of a replay: those of the first topic with that target."""
    found: Configs = {}
    for topic in sorted(topics):
        kept = {name: value for name, value in configs.get(topic, {}).items() if name not in LEFT_BEHIND}
        found.setdefault(targets.get(topic, topic), kept)
    return found


# For topics that are created: archived timestamps are kept, and retention must not delete old records.
CONFIGS: Final = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}
_TIMEOUT_MS: Final = 30_000
_BROKERS_CHOICE: Final = -1  # of the replication factor; from Kafka 2.4 on


class NeededTopic(NamedTuple):
    """What an archived topic needs: a number of partitions, and retention of records of this time (ms; None: no
    record).
    """

    partitions: int
    oldest_ms: int | None


class PreparedTopics(NamedTuple):
    """The topics that were created, and warnings about existing ones."""

    made: list[str]
    remarks: list[str]


def prepare_topics(
    client: Client,
    needed: Mapping[str, NeededTopic],
    configs: Mapping[str, str] | None = None,
    any_count: bool = False,
    archived: Mapping[str, Mapping[str, str]] | None = None,
) -> PreparedTopics:
    """Create the missing topics. An existing topic may have fewer partitions only with `any_count`.

    New topics get their `archived` configs, by topic, and `configs`, which override them; an empty value leaves one
    out. Raises `OptionError` if a topic has too few partitions, or replaces timestamps by the time of the append, and
    `ClientError`.
    """
    archived = archived or {}
    found = Counter(partition.topic for partition in client.list_partitions(needed, missing_ok=True))
    for topic, count in found.items():
        if not any_count and count < needed[topic].partitions:
            raise OptionError(f"topic {topic} has {count} partitions, and the archive has {needed[topic].partitions}")
    remarks = [remark for topic in found if (remark := _warn_of_retention(client, topic, needed[topic].oldest_ms))]
    made = [topic for topic in needed if topic not in found]
    for topic in made:
        wanted = {**CONFIGS, **archived.get(topic, {}), **(configs or {})}
        set_configs = {name: value for name, value in wanted.items() if value}
        _create_topic(client, topic, needed[topic].partitions, set_configs)
    return PreparedTopics(made, remarks)


def _create_topic(client: Client, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    of_topic = CreateTopicsRequest.CreatableTopic
    settings = [of_topic.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    wanted = of_topic(
        name=topic, num_partitions=partitions, replication_factor=_BROKERS_CHOICE, assignments=[], configs=settings
    )
    answer = client.request(CreateTopicsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS), client.fetch_controller_id())
    for each in answer.topics:
        client.check(each.error_code, f"creating topic {topic}", message=each.error_message)


def _warn_of_retention(client: Client, topic: str, oldest_ms: int | None) -> str:
    """Return a warning if an existing topic's retention deletes old records, or nothing. Raises `OptionError`."""
    configs = describe_configs(client, topic)
    if configs.get("message.timestamp.type") == "LogAppendTime":
        raise OptionError(f"topic {topic} has message.timestamp.type=LogAppendTime: archived times would be lost")
    retention_ms = int(configs.get("retention.ms") or -1)
    is_old = oldest_ms is not None and time.time() * 1000 - oldest_ms > retention_ms >= 0
    if is_old and "delete" in configs.get("cleanup.policy", "delete"):
        return f"topic {topic} has retention.ms={retention_ms}: the broker deletes archived records that are older"
    return ""
