"""CreateTopics, DeleteTopics and CreatePartitions.

Behaviour: a topic is usable after the answer to CreateTopics, and gone after the answer to DeleteTopics, so the
timeouts in the requests are not needed. A name that is listed twice is refused, and nothing is done for it. Every node
takes these requests, as the controller is in the same process.

Versions: CreateTopics 1 brought validate_only and error messages, 5 the settings of the new topic, 7 its id;
DeleteTopics 3 the code TOPIC_DELETION_DISABLED (INVALID_REQUEST before), 5 error messages, 6 topic ids.

If a client exceeds its quota on created and deleted partitions (KIP-599), it is refused from CreateTopics 6,
DeleteTopics 5 and CreatePartitions 3 on; older clients are throttled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from minibroker.broker.configs.settings import ConfigEntry, Settings
from minibroker.broker.control.placement import DEFAULT, MAXIMUM_PARTITIONS_PER_REQUEST, TOO_MANY_PARTITIONS
from minibroker.broker.delayed_operations import pause, run_in_slices
from minibroker.broker.metadata.leaders import NOT_HOSTED
from minibroker.broker.metadata.partitions import METADATA_TOPIC, Topic
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    ALTER_TOPIC,
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DELETE_CLUSTER,
    DELETE_TOPIC,
    DENIAL_MESSAGES,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    ResourceType,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.steps import Steps, count_items_in_steps, run_steps_of_each_item

CreatedTopic = CreateTopicsResponse.CreatableTopicResult
CreatedConfig = CreatedTopic.CreatableTopicConfigs
DeletedTopic = DeleteTopicsResponse.DeletableTopicResult
GrownTopic = CreatePartitionsResponse.CreatePartitionsTopicResult

FIRST_DELETION_BY_ID = 6
FIRST_WITH_DELETION_DISABLED = 3
FIRST_STRICT_CREATION, FIRST_STRICT_DELETION, FIRST_STRICT_GROWTH = 6, 5, 3  # refused if over the quota (KIP-599)


@handles(ApiKey.CREATE_TOPICS, durable=True)
async def create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    repeated = await run_in_slices(_find_repeated_names(topic.name for topic in request.topics))
    wanted = [topic for topic in request.topics if topic.name not in repeated]
    topics = [
        _make_failed_creation_result(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        for name in repeated
    ]
    await pause()
    if sum(_choose_partition_count(context, topic) for topic in wanted) > MAXIMUM_PARTITIONS_PER_REQUEST:
        error = KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        topics += [_make_failed_creation_result(topic.name, error) for topic in wanted]
    else:
        described = cache(
            partial(_make_created_config, context.cluster.settings)
        )  # a request for thousands of topics repeats them
        topics += await run_in_slices(
            run_steps_of_each_item(
                lambda topic: _create_topic(context, topic, request.validate_only, described), wanted
            )
        )
    return CreateTopicsResponse(topics=topics)


def _choose_partition_count(context: RequestContext, topic: CreateTopicsRequest.CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    default: int = context.cluster.settings["num.partitions"]
    return default if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)


def _make_failed_creation_result(name: str, error: KafkaError) -> CreatedTopic:
    """Return the result of a topic that is not created."""
    return CreatedTopic(name=name, error_code=error.code, error_message=error.message)


def _find_repeated_names(names: Iterable[str]) -> Steps[dict[str, None]]:
    """Return the names that are listed more than once, each once."""
    counts = yield from count_items_in_steps(names)
    repeated: dict[str, None] = {}
    for name, count in counts.items():
        if count > 1:
            repeated[name] = None
        yield
    yield from counts.release_keys_in_steps()
    return repeated


def _create_topic(
    context: RequestContext,
    topic: CreateTopicsRequest.CreatableTopic,
    validate_only: bool,
    describe_config: Callable[[ConfigEntry], CreatedConfig],
) -> Steps[CreatedTopic]:
    try:
        if topic.name != METADATA_TOPIC and not context.allows(CREATE_CLUSTER):  # nobody may create that one
            context.authorize(CREATE_TOPIC, topic.name, message="Authorization failed.")
        overrides = {config.name: config.value for config in topic.configs}
        topic_id, replicas = yield from context.cluster.controller.create_topic_in_steps(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            assignment=[(given.partition_index, given.broker_ids) for given in topic.assignments],
            overrides=overrides,
            validate_only=validate_only,
            charge=partial(context.charge_mutations, strict=context.version >= FIRST_STRICT_CREATION),
        )
    except KafkaError as error:
        return _make_failed_creation_result(topic.name, error)
    if not context.allows(DESCRIBE_TOPIC_CONFIGS, topic.name):
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatedTopic(name=topic.name, topic_id=topic_id, error_message=None, topic_config_error_code=code)
    texts = {name: value for name, value in overrides.items() if value is not None}
    return CreatedTopic(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=[
            describe_config(entry)
            for entry in context.cluster.settings.describe_topic_configs(texts)
            if entry.is_listed
        ],
    )


def _make_created_config(settings: Settings, entry: ConfigEntry) -> CreatedConfig:
    return CreatedConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=settings.get_topic_config_source(entry),
        is_sensitive=entry.setting.is_sensitive,
    )


@handles(ApiKey.DELETE_TOPICS, durable=True)
async def delete_topics(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    names_and_ids: Iterator[tuple[str | None, bytes]]
    if context.version >= FIRST_DELETION_BY_ID:
        names_and_ids = ((topic.name, topic.topic_id) for topic in request.topics)
    else:
        names_and_ids = ((name, ZERO_UUID) for name in request.topic_names)
    refused: list[DeletedTopic] = []
    found: Counter[Topic] = Counter()
    counts = await run_in_slices(count_items_in_steps(names_and_ids))
    for (name, topic_id), count in counts.items():
        try:
            _check_topic_may_be_deleted(context, name, topic_id, count > 1)
            found[_get_topic_to_delete(context, name, topic_id)] += 1
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                name, topic_id = _get_visible_name_and_id(context, name, topic_id)
            refused.append(_make_failed_deletion_result(name, topic_id, error))
        await pause()
    await run_in_slices(counts.release_keys_in_steps())
    deleted = await run_in_slices(
        run_steps_of_each_item(lambda topic: _delete_topic(context, topic, found[topic] > 1), found)
    )
    return DeleteTopicsResponse(responses=refused + deleted)


def _make_failed_deletion_result(name: str | None, topic_id: bytes, error: KafkaError) -> DeletedTopic:
    """Return the result of a topic that is not deleted."""
    return DeletedTopic(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


def _delete_topic(context: RequestContext, topic: Topic, is_named_twice: bool) -> Steps[DeletedTopic]:
    """Delete a topic, unless the request has both its name and its id."""
    try:
        if is_named_twice:
            message = "The provided topic name maps to an ID that was already supplied."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        _get_topic_to_delete(context, None, topic.topic_id)  # another request may have deleted it in the meantime
        context.charge_mutations(len(topic.partitions), strict=context.version >= FIRST_STRICT_DELETION)
        yield from context.cluster.controller.delete_topic_in_steps(topic)
    except KafkaError as error:
        return _make_failed_deletion_result(topic.name, topic.topic_id, error)
    return DeletedTopic(name=topic.name, topic_id=topic.topic_id)


def _check_topic_may_be_deleted(
    context: RequestContext, name: str | None, topic_id: bytes, is_named_twice: bool
) -> None:
    """Raise KafkaError if topics cannot be deleted, or if the request does not name the topic properly."""
    if not context.cluster.settings["delete.topic.enable"]:
        newer = context.version >= FIRST_WITH_DELETION_DISABLED
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED if newer else ErrorCode.INVALID_REQUEST)
    if name is None and topic_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and topic_id != ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if is_named_twice:
        which = "name" if name is not None else "id"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {which}.")


def _get_visible_name_and_id(context: RequestContext, name: str | None, topic_id: bytes) -> tuple[str | None, bytes]:
    """Return the topic's name and id for the answer; if the client may not describe it, only what the request has."""
    topic = context.find_topic(topic_id if name is None else name)
    if topic is None or not context.allows(DESCRIBE_TOPIC, topic.name):
        return name, topic_id
    return topic.name, topic.topic_id


def _get_topic_to_delete(context: RequestContext, name: str | None, topic_id: bytes) -> Topic:
    """Return the topic. Raises KafkaError if it does not exist or may not be deleted."""
    may_delete_all = context.allows(DELETE_CLUSTER)
    denied = DENIAL_MESSAGES[ResourceType.TOPIC]
    if name is None:
        topic = context.get_topic(topic_id, "This server does not host this topic ID.")
    else:
        if not may_delete_all:
            context.authorize(DESCRIBE_TOPIC, name, message=denied)
        topic = context.get_topic(name, NOT_HOSTED)
    if not may_delete_all:
        context.authorize(DELETE_TOPIC, topic.name, message=denied)
    return topic


@handles(ApiKey.CREATE_PARTITIONS, durable=True)
async def create_partitions(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    repeated = await run_in_slices(_find_repeated_names([topic.name for topic in request.topics]))
    wanted = [topic for topic in request.topics if topic.name not in repeated]
    results = await run_in_slices(
        run_steps_of_each_item(lambda topic: _add_partitions_to_topic(context, topic, request.validate_only), wanted)
    )
    results += [
        GrownTopic(name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.")
        for name in repeated
    ]
    return CreatePartitionsResponse(results=results)


def _add_partitions_to_topic(
    context: RequestContext, topic: CreatePartitionsRequest.CreatePartitionsTopic, validate_only: bool
) -> Steps[GrownTopic]:
    assignment = None if topic.assignments is None else [given.broker_ids for given in topic.assignments]
    controller = context.cluster.controller
    try:
        context.authorize(ALTER_TOPIC, topic.name)
        charge = partial(context.charge_mutations, strict=context.version >= FIRST_STRICT_GROWTH)
        yield from controller.add_partitions_in_steps(
            topic.name, topic.count, assignment, validate_only=validate_only, charge=charge
        )
    except KafkaError as error:
        return GrownTopic(name=topic.name, error_code=error.code, error_message=error.message)
    return GrownTopic(name=topic.name)
