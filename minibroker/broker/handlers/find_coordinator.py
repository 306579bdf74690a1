"""FindCoordinator: which node looks after a group or a transactional id.

Behaviour: every group and transactional id has its node (see `coordinators`) from the first day, though neither groups
nor transactions are served yet. A client that only wants to know whether its group has committed something, as a
consumer by assign does, then goes on (see `committed_offsets`); one that needs more finds at once, from ApiVersions,
that this broker has no such API. Kafka's other answer, COORDINATOR_NOT_AVAILABLE, would have both ask again and again
without a word to their users.

Versions: 1 brought the kind of key and error messages, 3 flexible fields, 4 several keys in one request (KIP-699), 5
TRANSACTION_ABORTABLE (never answered here), 6 keys of share groups (KIP-932).

Not implemented: share groups, whose keys are refused with INVALID_REQUEST, as by a Kafka without share groups.
"""

from __future__ import annotations

from enum import IntEnum

from minibroker.broker.coordinators import coordinator_of
from minibroker.broker.dispatch import Context, handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse

Coordinator = FindCoordinatorResponse.Coordinator

FIRST_WITH_SEVERAL_KEYS = 4
NO_ERROR_TEXT = "NONE"  # what Kafka answers in the versions with one key


class KeyType(IntEnum):
    """What kind of thing a key names."""

    GROUP = 0
    TRANSACTION = 1


@handles(ApiKey.FIND_COORDINATOR, "0-6")
def find_coordinator(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= FIRST_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(context, key, request.key_type) for key in request.coordinator_keys]
        )
    found = _coordinator(context, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or NO_ERROR_TEXT,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(context: Context, key: str, key_type: int) -> Coordinator:
    if key_type not in KeyType.__members__.values():
        message = f"There is no coordinator for keys of type {key_type}."
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )
    node = coordinator_of(context.cluster, key)
    endpoint = node.endpoints[context.connection.listener]
    return Coordinator(key=key, node_id=node.node_id, host=endpoint.host, port=endpoint.port, error_message="")
