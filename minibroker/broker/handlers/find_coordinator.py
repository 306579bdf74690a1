"""FindCoordinator: which node looks after a group or a transactional id.

Behaviour: a group is looked after by the node that leads its partition of `__consumer_offsets`, a transactional id by
that of its partition of `__transaction_state`; the first such request creates the topic. Kafka answers
COORDINATOR_NOT_AVAILABLE until it is there, and clients ask again. Where nobody leads the partition, or the topic
cannot be created, COORDINATOR_NOT_AVAILABLE is the answer here too.

Versions: 1 brought the kind of key and error messages, 3 flexible fields, 4 several keys in one request (KIP-699), 5
TRANSACTION_ABORTABLE (never answered here), 6 keys of share groups (KIP-932).

Not implemented: share groups, whose keys are refused with INVALID_REQUEST, as by a Kafka without share groups.
"""

from __future__ import annotations

import contextlib
from enum import IntEnum

from minibroker.broker.cluster import Node
from minibroker.broker.coordination.coordinators import coordinator_of_group, coordinator_of_transactions
from minibroker.broker.requests.dispatch import Context, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from minibroker.protocol.steps import Steps, each

Coordinator = FindCoordinatorResponse.Coordinator

FIRST_WITH_SEVERAL_KEYS = 4
NO_ERROR_TEXT = "NONE"  # what Kafka answers in the versions with one key


class KeyType(IntEnum):
    """The kind of thing that a key names."""

    GROUP = 0
    TRANSACTION = 1


@handles(ApiKey.FIND_COORDINATOR, "0-6", durable=True)
def find_coordinator(context: Context, request: FindCoordinatorRequest) -> Steps[FindCoordinatorResponse]:
    if context.version < FIRST_WITH_SEVERAL_KEYS or request.coordinator_keys:
        with contextlib.suppress(KafkaError):  # it is told with each key
            yield from _create_topic(context, request.key_type)
    if context.version >= FIRST_WITH_SEVERAL_KEYS:
        coordinators = yield from each(
            lambda key: _coordinator(context, key, request.key_type), request.coordinator_keys
        )
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _coordinator(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or NO_ERROR_TEXT,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _create_topic(context: Context, key_type: int) -> Steps[None]:
    """Create the topic that these coordinators keep their state in, unless it is there. Raises KafkaError."""
    if key_type == KeyType.GROUP:
        yield from context.cluster.groups.topic.create_in_steps()
    elif key_type == KeyType.TRANSACTION:
        yield from context.cluster.transactions.create_topic_in_steps()


def _coordinator(context: Context, key: str, key_type: int) -> Coordinator:
    try:
        node = _node(context, key, key_type)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message or ""
        )
    endpoint = node.endpoints[context.connection.listener]
    return Coordinator(key=key, node_id=node.node_id, host=endpoint.host, port=endpoint.port, error_message="")


def _node(context: Context, key: str, key_type: int) -> Node:
    if key_type == KeyType.GROUP:
        return coordinator_of_group(context.cluster, key)
    if key_type == KeyType.TRANSACTION:
        return coordinator_of_transactions(context.cluster, key)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no coordinator for keys of type {key_type}.")
