"""The view of topics: their partitions as they are now, and their configs with where each value comes from."""

from __future__ import annotations

from typing import Any, Final

from minibroker.broker.configs.settings import ConfigSource
from minibroker.broker.metadata.partitions import Partition, Topic
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.topics import DeleteTopicsRequest
from minibroker.protocol.primitives import format_uuid
from minibroker.testing.broker import Broker
from minibroker.testing.verbs.own_requests import execute_request, get_any_node, raise_if_error
from minibroker.web.routes import Routes

MOST_TOPICS: Final = 5_000
MOST_PARTITIONS: Final = 2_000
TOPIC_RESOURCE: Final = 2
DEFAULT: Final = "default"
SOURCES: Final = {source.value: source.name.lower().replace("_", " ") for source in ConfigSource}


def make_topic_routes(broker: Broker) -> Routes:
    """Return the routes of the topics view."""
    routes = Routes("/topics")

    @routes.get("")
    async def list_topics() -> dict[str, Any]:
        """Return all topics with the sums over their partitions."""
        topics = broker.running.cluster.image.topics
        shown = sorted(topics.values(), key=lambda topic: (topic.internal, topic.name))[:MOST_TOPICS]
        return {"topics": [_summarize_topic(topic) for topic in shown], "more": len(topics) - len(shown)}

    @routes.get("/{name}")
    async def get_topic(name: str) -> dict[str, Any]:
        """Return a topic with its partitions."""
        topic = find_topic(broker, name)
        partitions = [_describe_partition(each) for each in topic.partitions[:MOST_PARTITIONS]]
        more = len(topic.partitions) - len(partitions)
        return {**_summarize_topic(topic), "id": format_uuid(topic.topic_id), "partitions": partitions, "more": more}

    @routes.get("/{name}/configs")
    async def get_configs(name: str) -> list[dict[str, Any]]:
        """Return all configs of a topic, those that were set first."""
        found = await _list_configs(broker, name)
        return sorted(found, key=lambda each: (each["source"] == DEFAULT, each["name"]))

    @routes.delete("/{name}")
    async def delete_topic(name: str) -> None:
        """Delete a topic, as a client would."""
        cluster = broker.running.cluster
        asked = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=30_000)
        answer = await execute_request(cluster, get_any_node(cluster), asked)
        raise_if_error(answer.responses[0].error_code, answer.responses[0].error_message or name)

    return routes


def find_topic(broker: Broker, name: str) -> Topic:
    """Return a topic. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    found = broker.running.cluster.image.topics.get(name)
    if found is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    return found


def find_partition(broker: Broker, name: str, index: int) -> Partition:
    """Return a partition that has a log here. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    found = find_topic(broker, name).find_partition(index)
    if found is None or not found.has_local_log:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no log of {name}-{index} here")
    return found


def _summarize_topic(topic: Topic) -> dict[str, Any]:
    here = [each.log for each in topic.partitions if each.has_local_log]
    return {
        "name": topic.name,
        "internal": topic.internal,
        "count": len(topic.partitions),
        "offsets": sum(log.log_end_offset - log.log_start_offset for log in here),
        "bytes": sum(log.size_bytes for log in here),
        "cleanup": ",".join(sorted(topic.settings.cleanup_policy)),
        "open_transactions": sum(len(log.producers.open_transactions) for log in here),
    }


def _describe_partition(partition: Partition) -> dict[str, Any]:
    said: dict[str, Any] = {
        "index": partition.index,
        "leader": partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "offline": partition.is_offline,
    }
    if partition.has_local_log:
        log = partition.log
        said |= {
            "start": log.log_start_offset,
            "stable": log.last_stable_offset,
            "high_watermark": log.high_watermark,
            "end": log.log_end_offset,
            "bytes": log.size_bytes,
            "producers": len(log.producers),
            "open_transactions": len(log.producers.open_transactions),
        }
    return said


async def _list_configs(broker: Broker, name: str) -> list[dict[str, Any]]:
    cluster = broker.running.cluster
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=find_topic(broker, name).name, configuration_keys=None
    )
    asked = DescribeConfigsRequest(resources=[resource], include_documentation=True)
    answer = await execute_request(cluster, get_any_node(cluster), asked)
    raise_if_error(answer.results[0].error_code, answer.results[0].error_message or name)
    return [
        {
            "name": each.name,
            "value": each.value,
            "source": SOURCES.get(each.config_source, "unknown"),
            "about": each.documentation,
        }
        for each in answer.results[0].configs
    ]
