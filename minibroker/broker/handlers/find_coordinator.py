"""FindCoordinator: which node coordinates a group or a transactional id, or keeps the state of a share partition.

Behaviour: the coordinator of a group is the leader of its partition of `__consumer_offsets`; that of a transactional
id leads its partition of `__transaction_state`. The first request creates the topic and is answered at once; Kafka
answers COORDINATOR_NOT_AVAILABLE until the topic exists, and clients ask again. If the partition has no leader, or the
topic cannot be created, the answer is COORDINATOR_NOT_AVAILABLE here too. The key
`group:topic id:partition` finds the node that stores the state of a share partition in `__share_group_state`.

Versions: 1 brought the kind of key and error messages, 3 flexible fields, 4 several keys in one request (KIP-699), 5
TRANSACTION_ABORTABLE (never answered here), 6 keys of share groups (KIP-932).
"""

from __future__ import annotations

import contextlib

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.broker.security.operations import (
    CLUSTER_ACTION,
    DENIAL_MESSAGES,
    DESCRIBE_GROUP,
    DESCRIBE_TRANSACTIONAL_ID,
    ResourceType,
)
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.steps import apply_to_items_in_steps

Coordinator = FindCoordinatorResponse.Coordinator

TO_FIND = {0: DESCRIBE_GROUP, 1: DESCRIBE_TRANSACTIONAL_ID}  # by the type of the key
SHARE_KEY = 2
FIRST_WITH_SHARE_KEYS = 6
FIRST_WITH_SEVERAL_KEYS = 4
TEXTS = {  # Kafka's error messages in versions with one key
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: DENIAL_MESSAGES[ResourceType.GROUP],
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: DENIAL_MESSAGES[ResourceType.TRANSACTIONAL_ID],
}


@handles(ApiKey.FIND_COORDINATOR, durable=True)
async def find_coordinator(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    is_known = request.key_type != SHARE_KEY or context.version >= FIRST_WITH_SHARE_KEYS
    if is_known and (context.version < FIRST_WITH_SEVERAL_KEYS or request.coordinator_keys):
        with contextlib.suppress(KafkaError):  # each key is answered with the error below
            await run_in_slices(
                context.cluster.coordinators.get_coordinator_by_key_type(request.key_type).log.create_topic_in_steps()
            )
    if context.version >= FIRST_WITH_SEVERAL_KEYS:
        coordinators = await run_in_slices(
            apply_to_items_in_steps(
                lambda key: _make_coordinator_answer(context, key, request.key_type), request.coordinator_keys
            )
        )
        return FindCoordinatorResponse(coordinators=coordinators)
    coordinator = _make_coordinator_answer(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message or TEXTS.get(ErrorCode(coordinator.error_code)),
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _make_coordinator_answer(context: RequestContext, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == SHARE_KEY:
            _check_share_coordinator_key(context, key)
        coordinators = context.cluster.coordinators.get_coordinator_by_key_type(key_type)
        if key_type in TO_FIND:
            context.authorize(TO_FIND[key_type], key)
        node = find_coordinator_or_create_topic(coordinators, key)
        if context.connection.listener not in node.endpoints:  # it was added at run time
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or ""
        )
    endpoint = node.endpoints[context.connection.listener]
    return Coordinator(key=key, node_id=node.node_id, host=endpoint.host, port=endpoint.port, error_message="")


def _check_share_coordinator_key(context: RequestContext, key: str) -> None:
    """Check the key of a share partition, and the right to ask for it. Raises KafkaError."""
    if context.version < FIRST_WITH_SHARE_KEYS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "There is no coordinator for keys of type 2 in this version.")
    context.authorize(CLUSTER_ACTION, message=DENIAL_MESSAGES[ResourceType.CLUSTER])
    _, *topic_and_partition = key.rsplit(":", 2)
    if len(topic_and_partition) != 2 or not topic_and_partition[1].isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid share partition key: {key}")
