"""Metadata: the nodes, the controller, and the partitions of topics.

Behaviour: nodes are listed with their address at the listener that the client uses. A missing topic is created if the
request and `auto.create.topics.enable` allow it. It is usable after the answer, but that answer still has
UNKNOWN_TOPIC_OR_PARTITION, as in Kafka. If the topic cannot be created, the log says why. The coordinators' topics are
created with the coordinators' settings, except that of share groups, which are not served. A request that would create
more than 10,000 partitions creates none. A topic that is requested twice is listed once. If one topic is requested by
id, topics requested by name are left out.

Versions: 0 requests all topics with an empty list, later ones with null; it leaves out replicas whose nodes are away,
with the error REPLICA_NOT_AVAILABLE. The request's flag for creation came with 4, authorized operations with 8, topic
ids in the answer with 10 and in the request with 12, an error for the whole answer with 13. Versions 10 and 11 have the
field for topic ids in the request, and reject it.
"""

from __future__ import annotations

import logging
from functools import partial

from minibroker.broker.control.placement import MAXIMUM_PARTITIONS_PER_REQUEST, TOO_MANY_PARTITIONS
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.handlers.cluster_description import encode_authorized_cluster_operations
from minibroker.broker.metadata.leaders import list_advertised_nodes, make_partition_answer
from minibroker.broker.metadata.partitions import (
    GROUPS_TOPIC,
    INTERNAL_TOPICS,
    METADATA_TOPIC,
    TRANSACTIONS_TOPIC,
    Topic,
    check_topic_name,
)
from minibroker.broker.requests.context import RequestContext, count_refusal, log_refusals
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC, ResourceType
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import (
    KeyCounts,
    Steps,
    apply_to_items_in_steps,
    count_items_in_steps,
    run_steps_of_each_item,
    split_into_portions,
)

log = logging.getLogger("minibroker.metadata")

TopicAnswer = MetadataResponse.MetadataResponseTopic
PartitionAnswer = TopicAnswer.MetadataResponsePartition
RequestedTopic = MetadataRequest.MetadataRequestTopic

WITHOUT_OFFLINE_REPLICAS = 0
FIRST_WITH_NULL_FOR_ALL = 1
FIRST_WITH_CREATION_FLAG = 4
FIRST_BY_TOPIC_ID = 12
NEVER_MADE = INTERNAL_TOPICS - {GROUPS_TOPIC, TRANSACTIONS_TOPIC} | {METADATA_TOPIC}


@handles(ApiKey.METADATA, durable=True)
async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    if context.version < FIRST_BY_TOPIC_ID and (await run_in_slices(_has_topic_by_id(request.topics or []))):
        topics = await run_in_slices(apply_to_items_in_steps(_make_invalid_topic_answer, request.topics or []))
        return MetadataResponse(topics=topics)
    topics = await run_in_slices(_describe_topics(context, request))
    if any([topic.error_code for topic in topics]):
        context.cache_place = None  # an error may be gone when the client asks again
    log_refusals(context, log, ApiKey.METADATA, logging.WARNING)
    if request.include_topic_authorized_operations:
        await run_in_slices(apply_to_items_in_steps(partial(_add_authorized_operations, context), topics))
    return MetadataResponse(
        brokers=_list_brokers(context),
        cluster_id=context.cluster.cluster_id,
        controller_id=context.cluster.controller_id,
        topics=topics,
        cluster_authorized_operations=encode_authorized_cluster_operations(
            context, request.include_cluster_authorized_operations
        ),
    )


def _has_topic_by_id(topics: list[RequestedTopic]) -> Steps[bool]:
    """Return whether a topic has an id or no name."""
    for requested in topics:
        if requested.topic_id != ZERO_UUID or requested.name is None:
            return True
        yield
    return False


def _add_authorized_operations(context: RequestContext, topic: TopicAnswer) -> None:
    if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        topic.topic_authorized_operations = context.get_allowed_operations(ResourceType.TOPIC, topic.name)


def _list_brokers(context: RequestContext) -> list[MetadataResponse.MetadataResponseBroker]:
    listener = context.connection.listener
    return [
        MetadataResponse.MetadataResponseBroker(
            node_id=node.node_id,
            host=node.endpoints[listener].host,
            port=node.endpoints[listener].port,
            rack=node.rack,
        )
        for node in list_advertised_nodes(context.cluster.nodes, listener).values()
    ]


def _describe_topics(context: RequestContext, request: MetadataRequest) -> Steps[list[TopicAnswer]]:
    if request.topics is None or (context.version < FIRST_WITH_NULL_FOR_ALL and not request.topics):
        answers = []
        for topic in list(context.cluster.image.topics.values()):
            if context.allows(DESCRIBE_TOPIC, topic.name):
                answers.append((yield from _describe_topic(context, topic)))
            yield
        return answers
    ids: dict[bytes, None] = {}
    for requested in request.topics:
        if requested.topic_id != ZERO_UUID:
            ids[requested.topic_id] = None
        yield
    if ids:
        return (yield from run_steps_of_each_item(partial(_describe_topic_by_id, context), ids))
    names = yield from count_items_in_steps(requested.name or "" for requested in request.topics)
    create = context.version < FIRST_WITH_CREATION_FLAG or request.allow_auto_topic_creation
    if create and (yield from _have_too_many_partitions(context, names)):
        create = False
        count_refusal(context, KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS), next(iter(names)))
    answers = yield from run_steps_of_each_item(lambda name: _describe_topic_by_name(context, name, create), names)
    yield from names.release_keys_in_steps()
    return answers


def _have_too_many_partitions(context: RequestContext, names: KeyCounts[str]) -> Steps[bool]:
    """Return whether the topics that are missing would have more partitions than one request may create."""
    each_count: int = context.cluster.settings["num.partitions"]
    if len(names) * each_count <= MAXIMUM_PARTITIONS_PER_REQUEST:
        return False
    missing = 0
    for name in names:
        missing += context.find_topic(name) is None
        yield
    return missing * each_count > MAXIMUM_PARTITIONS_PER_REQUEST


def _make_invalid_topic_answer(requested: RequestedTopic) -> TopicAnswer:
    return TopicAnswer(error_code=ErrorCode.INVALID_REQUEST, name=requested.name or "", topic_id=requested.topic_id)


def _describe_topic_by_id(context: RequestContext, topic_id: bytes) -> Steps[TopicAnswer]:
    topic = context.find_topic(topic_id)
    if topic is None:
        return TopicAnswer(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not context.allows(DESCRIBE_TOPIC, topic.name):
        return TopicAnswer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=topic_id)
    return (yield from _describe_topic(context, topic))


def _describe_topic_by_name(context: RequestContext, name: str, create: bool) -> Steps[TopicAnswer]:
    create = create and context.cluster.settings["auto.create.topics.enable"]
    if not context.allows(DESCRIBE_TOPIC, name, is_needed=True):
        return TopicAnswer(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    try:
        if create and context.find_topic(name) is None and not context.allows(CREATE_CLUSTER):
            context.authorize(CREATE_TOPIC, name)
        check_topic_name(name)
        topic = yield from _find_or_create_topic(context, name, create)
        return (yield from _describe_topic(context, topic))
    except KafkaError as error:
        return TopicAnswer(error_code=error.code, name=name, is_internal=name in INTERNAL_TOPICS)


def _find_or_create_topic(context: RequestContext, name: str, create: bool) -> Steps[Topic]:
    """Return the topic. Create it first if it is missing and `create` is set. Raises KafkaError."""
    topic = context.find_topic(name)
    if topic is not None:
        return topic
    if create and name not in NEVER_MADE:
        try:
            yield from _auto_create_topic(context, name)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another request may be creating it
                count_refusal(context, error, name)
    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _auto_create_topic(context: RequestContext, name: str) -> Steps[None]:
    coordinators = context.cluster.coordinators.find_coordinator_by_state_topic(name)
    if coordinators is not None:
        yield from coordinators.log.create_topic_in_steps()
    else:
        yield from context.cluster.controller.create_topic_in_steps(name)


def _describe_topic(context: RequestContext, topic: Topic) -> Steps[TopicAnswer]:
    answer = TopicAnswer(name=topic.name, topic_id=topic.topic_id, is_internal=topic.internal)
    nodes = list_advertised_nodes(context.cluster.nodes, context.connection.listener)
    for portion in split_into_portions(topic.partitions):
        answer.partitions += [make_partition_answer(partition, nodes, PartitionAnswer) for partition in portion]
        yield
    if context.version == WITHOUT_OFFLINE_REPLICAS:
        yield from apply_to_items_in_steps(partial(_remove_absent_replicas, context), answer.partitions)
    return answer


def _remove_absent_replicas(context: RequestContext, partition: PartitionAnswer) -> None:
    """Remove absent nodes from replicas and ISR, as old clients need it, and set REPLICA_NOT_AVAILABLE."""
    nodes = context.cluster.nodes
    if all(node in nodes for node in partition.replica_nodes):
        return
    partition.replica_nodes = [node for node in partition.replica_nodes if node in nodes]
    partition.isr_nodes = [node for node in partition.isr_nodes if node in nodes]
    partition.error_code = partition.error_code or ErrorCode.REPLICA_NOT_AVAILABLE
