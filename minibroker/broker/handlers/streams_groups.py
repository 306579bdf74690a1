"""Streams groups: heartbeats and descriptions of Kafka Streams applications (KIP-1071).

Behaviour: a heartbeat joins, stays in and leaves a group, and is answered with the member's tasks, if they have
changed. The first member's topology becomes the group's. Internal topics that it needs are created after the heartbeat
that found them missing, with the rights of its client; until all topics are there, members have no tasks, and the
answers say what is missing. All of it needs the feature streams.version, and `streams` in
`group.coordinator.rebalance.protocols`.

Versions: StreamsGroupHeartbeat 1 and StreamsGroupDescribe 1 brought descriptions of topologies for people (KIP-1331),
and the name of the assignor (KIP-1357). Static members are Kafka 4.4's.

Not implemented: source topics by pattern, which Kafka refuses, too. Descriptions of topologies are stored by a plugin
of the broker's, and there is none; StreamsGroupTopologyDescriptionUpdate says so, as Kafka does without a plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.configs.group_settings import get_group_config
from minibroker.broker.control.placement import MAXIMUM_PARTITIONS_PER_REQUEST, TOO_MANY_PARTITIONS
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.handlers.group_membership import make_caller
from minibroker.broker.metadata.features import STREAMS_VERSION
from minibroker.broker.metadata.partitions import INTERNAL_TOPICS, check_topic_name
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    CREATE_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_GROUP,
    DESCRIBE_TOPIC,
    READ_GROUP,
    ResourceType,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.streams_groups import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupTopologyDescriptionUpdateRequest,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from minibroker.protocol.steps import Steps, apply_to_distinct_items_in_steps, apply_to_items_in_steps

if TYPE_CHECKING:
    from minibroker.broker.groups.streams.topology import NewTopic

DescribedGroup = StreamsGroupDescribeResponse.DescribedGroup

LISTED = 3  # names in a message
NOT_STORED = 1  # the status of a description that nobody keeps


def _check_streams_groups_enabled(context: RequestContext) -> None:
    """Raise KafkaError(UNSUPPORTED_VERSION) if streams groups are disabled in this cluster."""
    cluster = context.cluster
    enabled = "streams" in cluster.settings["group.coordinator.rebalance.protocols"]
    if not enabled or not cluster.image.features.get(STREAMS_VERSION, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


# --- StreamsGroupHeartbeat --------------------------------------------------------------------------


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, durable=True)
async def streams_group_heartbeat(
    context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    # Imported late, for a fast start: many brokers never have a group.
    from minibroker.broker.groups.streams.streams_heartbeat import handle_streams_heartbeat
    from minibroker.broker.groups.streams.streams_validation import check_heartbeat_request
    from minibroker.broker.groups.streams.topology import check_topology_size, list_topology_topic_names

    _check_streams_groups_enabled(context)
    context.authorize(READ_GROUP, request.group_id)
    if request.topology is not None:
        check_topology_size(request.topology)
        names = list_topology_topic_names(request.topology)
        _check_internal_topic_names(names)
        await run_in_slices(apply_to_items_in_steps(partial(context.authorize, DESCRIBE_TOPIC), names))
    check_heartbeat_request(request)
    groups = context.cluster.groups
    groups.check_is_coordinator(context.node, request.group_id)
    response, missing = handle_streams_heartbeat(groups, request, make_caller(context), context.version)
    context.delay_answer_until_wait_is_over(
        groups.make_durability_wait(request.group_id), partial(_set_heartbeat_error, response)
    )
    if missing:
        await run_in_slices(_create_internal_topics(context, request.group_id, missing, response))
    return response


def _set_heartbeat_error(response: StreamsGroupHeartbeatResponse, error: KafkaError) -> None:
    response.error_code, response.error_message = error.code, error.message
    response.member_id, response.member_epoch, response.status = "", 0, []
    response.active_tasks = response.standby_tasks = response.warmup_tasks = None


def _check_internal_topic_names(names: Mapping[str, None]) -> None:
    """Check that topics of a topology have valid names, not Kafka's own. Raises KafkaError."""
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        message = f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
    invalid = [name for name in names if not _is_valid_topic_name(name)]
    if invalid:
        message = f"Topic names {','.join(invalid)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _is_valid_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _create_internal_topics(
    context: RequestContext,
    group_id: str,
    missing_topics: Mapping[str, NewTopic],
    response: StreamsGroupHeartbeatResponse,
) -> Steps[None]:
    """Create the internal topics that a group needs; the answer says which cannot be created.

    A failure is remembered for two heartbeats, so that each does not try again.
    """
    if not context.allows(CREATE_CLUSTER):
        refused = [name for name in missing_topics if not context.allows(CREATE_TOPIC, name)]
        if refused:
            _add_status_detail(response, f"; Unauthorized to CREATE on topics {', '.join(refused)}.")
            return
    cluster, failures = context.cluster, context.cluster.groups.creation_failures
    if sum(topic.partition_count for topic in missing_topics.values()) > MAXIMUM_PARTITIONS_PER_REQUEST:
        _add_status_detail(response, f"; Creation failed: {TOO_MANY_PARTITIONS}")
        return
    interval_ms = get_group_config(cluster, group_id, "streams.heartbeat.interval.ms")
    for name, topic in missing_topics.items():
        is_known = context.find_topic(name) is not None or cluster.controller.is_topic_changing(name)
        if is_known or failures.find_failure_of_topic(name) is not None:
            continue
        try:
            yield from cluster.controller.create_topic_in_steps(
                name,
                topic.partition_count,
                topic.replication_factor,
                overrides=topic.configs,
                charge=partial(context.charge_mutations, strict=True),
            )
        except KafkaError as error:
            failures.add_failure(name, error.message or error.code.name, 2 * interval_ms)
        yield
    failed = [
        f"{name} ({failure})"
        for name in missing_topics
        if (failure := failures.find_failure_of_topic(name)) is not None
    ]
    if failed:
        _add_status_detail(response, f"; Creation failed: {', '.join(failed[:LISTED])}.")


def _add_status_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    """Add a detail to the status that says that topics are missing."""
    from minibroker.broker.groups.streams.topology import HeartbeatStatus

    for status in response.status or ():
        if status.status_code == HeartbeatStatus.MISSING_INTERNAL_TOPICS:
            status.status_detail += detail


# --- StreamsGroupDescribe ---------------------------------------------------------------------------


@handles(ApiKey.STREAMS_GROUP_DESCRIBE)
async def streams_group_describe(
    context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    def describe_group(group_id: str) -> DescribedGroup:
        group = _describe_streams_group(context, group_id)
        if group.error_code == ErrorCode.NONE:
            group.topology_description_status = NOT_STORED if request.include_topology_description else 0
            if request.include_authorized_operations:
                group.authorized_operations = context.get_allowed_operations(ResourceType.GROUP, group_id)
        return group

    return StreamsGroupDescribeResponse(
        groups=(await run_in_slices(apply_to_distinct_items_in_steps(describe_group, request.group_ids)))
    )


def _describe_streams_group(context: RequestContext, group_id: str) -> DescribedGroup:
    from minibroker.broker.groups.streams.streams_describing import describe_streams_group

    try:
        _check_streams_groups_enabled(context)
        context.authorize(DESCRIBE_GROUP, group_id)
        context.cluster.groups.check_is_coordinator_and_group_id(context.node, group_id)
        group = context.cluster.groups.get_streams_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    names = () if group.topology is None else group.topology.topic_names
    if not all(context.allows(DESCRIBE_TOPIC, name) for name in names):
        message = "The described group uses topics that the client is not authorized to describe."
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return DescribedGroup(group_id=group_id, error_code=code, error_message=message)
    return describe_streams_group(group)


# --- StreamsGroupTopologyDescriptionUpdate ------------------------------------------------------------


@handles(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE)
def streams_group_topology_description_update(
    context: RequestContext, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    _check_streams_groups_enabled(context)
    context.authorize(READ_GROUP, request.group_id)
    message = "The broker has no streams group topology description plugin configured."
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
