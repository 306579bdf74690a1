"""Metadata: the nodes, the controller, and where the partitions of topics are.

Behaviour: a node is told with the address of the listener that the client came by. A topic that is not there is made
when the request and `auto.create.topics.enable` allow it, and is usable in the same answer: Kafka's own answer has
LEADER_NOT_AVAILABLE first.

Versions: 0 asks for all topics with an empty list, later ones with null; 4 brought the request's flag for creation, 8
authorized operations, 10 topic ids in the answer, 12 topic ids in the request, 13 an error of the whole answer.
"""

from __future__ import annotations

from minibroker.broker.dispatch import Context, handles
from minibroker.broker.operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from minibroker.broker.topics import NO_LEADER, Partition, Topic, check_name
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.primitives import ZERO_UUID

TopicAnswer = MetadataResponse.MetadataResponseTopic
PartitionAnswer = TopicAnswer.MetadataResponsePartition

FIRST_WITH_NULL_FOR_ALL = 1
FIRST_WITH_CREATION_FLAG = 4
FIRST_BY_TOPIC_ID = 12


@handles(ApiKey.METADATA, "0-13")
def metadata(context: Context, request: MetadataRequest) -> MetadataResponse:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    topics = [_answer(context, asked) for asked in _asked(context, request)]
    for topic in topics:
        topic.topic_authorized_operations = operations if topic.error_code == 0 else NOT_ASKED
    return MetadataResponse(
        brokers=_brokers(context),
        cluster_id=context.cluster.cluster_id,
        controller_id=min(context.cluster.nodes),
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _brokers(context: Context) -> list[MetadataResponse.MetadataResponseBroker]:
    listener = context.connection.listener
    return [
        MetadataResponse.MetadataResponseBroker(
            node_id=node.node_id,
            host=node.endpoints[listener].host,
            port=node.endpoints[listener].port,
            rack=node.rack,
        )
        for node in context.cluster.nodes.values()
    ]


def _asked(context: Context, request: MetadataRequest) -> list[Topic | _Missing]:
    """Each topic that is asked for, or why it is not to be had."""
    everything = request.topics is None or (context.version < FIRST_WITH_NULL_FOR_ALL and not request.topics)
    if everything:
        return list(context.cluster.image.topics.values())
    create = context.version < FIRST_WITH_CREATION_FLAG or request.allow_auto_topic_creation
    return [_found(context, asked, create) for asked in request.topics or ()]


class _Missing(KafkaError):
    """An error about one asked topic."""

    def __init__(self, code: ErrorCode, name: str | None, topic_id: bytes) -> None:
        super().__init__(code)
        self.name = name
        self.topic_id = topic_id


def _found(context: Context, asked: MetadataRequest.MetadataRequestTopic, create: bool) -> Topic | _Missing:
    image = context.cluster.image
    if asked.topic_id != ZERO_UUID:
        topic = image.topics_by_id.get(asked.topic_id)
        if topic is not None and context.version >= FIRST_BY_TOPIC_ID:
            return topic
        by_id = context.version >= FIRST_BY_TOPIC_ID
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.INVALID_REQUEST
        return _Missing(code, None if by_id else asked.name or "", asked.topic_id)
    name = asked.name or ""
    try:
        check_name(name)
        if name not in image.topics:
            if not (create and context.cluster.settings["auto.create.topics.enable"]):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            context.cluster.controller.create_topic(name)
    except KafkaError as error:
        return _Missing(error.code, name, ZERO_UUID)
    return image.topics[name]


def _answer(context: Context, topic: Topic | _Missing) -> TopicAnswer:
    if isinstance(topic, _Missing):
        return TopicAnswer(error_code=topic.code, name=topic.name, topic_id=topic.topic_id)
    return TopicAnswer(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(context, partition) for partition in topic.partitions],
    )


def _partition(context: Context, partition: Partition) -> PartitionAnswer:
    nodes = context.cluster.nodes
    return PartitionAnswer(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if partition.leader_id == NO_LEADER else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[node for node in partition.replicas if node not in nodes],
    )
