"""Operations, types of resources, and the rights that each API needs.

`REQUIRED` is the table "Operations in Kafka" of Kafka's documentation, in the order of the checks. Each handler checks
its rights through the request's context. A bit field (KIP-430) has the allowed operations on a resource; without an
authorizer these are all operations of its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from minibroker.named_tuples import NamedTuple
from minibroker.protocol.apis import ApiKey, get_api_name
from minibroker.protocol.errors import ErrorCode

NOT_ASKED: Final = -(1 << 31)  # instead of a bit field, if the request does not ask for one
CLUSTER_NAME: Final = "kafka-cluster"  # the only resource of the type CLUSTER


class Operation(IntEnum):
    """Kafka's AclOperation. ANY is only in filters, ALL only in ACLs."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """Kafka's ResourceType of ACLs. Its numbers are not those of ConfigResource.Type. ANY is only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Right(NamedTuple):
    """An operation on a type of resource."""

    operation: Operation
    resource_type: ResourceType


def format_user_resource(name: str) -> str:
    """Return the name of a resource of type USER: "*" for all, a principal such as Group:a, or a user's name."""
    return name if name == "*" or ":" in name else f"User:{name}"


DENIALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
DENIAL_MESSAGES = {  # which Kafka has in some answers
    ResourceType.TOPIC: "Topic authorization failed.",
    ResourceType.GROUP: "Group authorization failed.",
    ResourceType.CLUSTER: "Cluster authorization failed.",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}

READ_TOPIC = Right(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Right(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Right(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Right(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Right(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Right(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Right(Operation.READ, ResourceType.GROUP)
DELETE_GROUP = Right(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Right(Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.GROUP)
CREATE_CLUSTER = Right(Operation.CREATE, ResourceType.CLUSTER)  # a topic of any name
DELETE_CLUSTER = Right(Operation.DELETE, ResourceType.CLUSTER)  # a topic of any name
ALTER_CLUSTER: Final = Right(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Right(Operation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION: Final = Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Right(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Right(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Right(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
TWO_PHASE_COMMIT_ID = Right(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
WRITE_TRANSACTIONAL_ID: Final = Right(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Right(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TOKEN = Right(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN)
CREATE_TOKENS = Right(Operation.CREATE_TOKENS, ResourceType.USER)  # the name includes the type, as in User:alice
DESCRIBE_TOKENS = Right(Operation.DESCRIBE_TOKENS, ResourceType.USER)


def make_denial_text(key: ApiKey, right: Right) -> str:
    """Return Kafka's message to a client that may not do this to the cluster. Kafka's has a dump of the request."""
    return f"Request {get_api_name(key)} needs {right.operation.name} permission."


DESCRIBING_CONFIGS = (DESCRIBE_TOPIC_CONFIGS, DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS)
ALTERING_CONFIGS = (ALTER_TOPIC_CONFIGS, ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS)

REQUIRED: Mapping[ApiKey, tuple[Right, ...]] = {
    ApiKey.PRODUCE: (WRITE_TRANSACTIONAL_ID, WRITE_TOPIC),
    ApiKey.FETCH: (READ_TOPIC, CLUSTER_ACTION),
    ApiKey.LIST_OFFSETS: (DESCRIBE_TOPIC,),
    ApiKey.METADATA: (DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_CLUSTER),
    ApiKey.OFFSET_COMMIT: (READ_GROUP, READ_TOPIC),
    ApiKey.OFFSET_FETCH: (DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.FIND_COORDINATOR: (DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID),
    ApiKey.JOIN_GROUP: (READ_GROUP,),
    ApiKey.HEARTBEAT: (READ_GROUP,),
    ApiKey.LEAVE_GROUP: (READ_GROUP,),
    ApiKey.SYNC_GROUP: (READ_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (DESCRIBE_GROUP,),
    ApiKey.LIST_GROUPS: (DESCRIBE_CLUSTER, DESCRIBE_GROUP),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (CREATE_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS),
    ApiKey.DELETE_TOPICS: (DELETE_CLUSTER, DESCRIBE_TOPIC, DELETE_TOPIC),
    ApiKey.DELETE_RECORDS: (DELETE_TOPIC,),
    ApiKey.INIT_PRODUCER_ID: (
        WRITE_TRANSACTIONAL_ID,
        TWO_PHASE_COMMIT_ID,
        IDEMPOTENT_WRITE,
        WRITE_TOPIC,  # on any topic
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (CLUSTER_ACTION, DESCRIBE_TOPIC),
    ApiKey.ADD_PARTITIONS_TO_TXN: (CLUSTER_ACTION, WRITE_TRANSACTIONAL_ID, WRITE_TOPIC),
    ApiKey.ADD_OFFSETS_TO_TXN: (WRITE_TRANSACTIONAL_ID, READ_GROUP),
    ApiKey.END_TXN: (WRITE_TRANSACTIONAL_ID,),
    ApiKey.WRITE_TXN_MARKERS: (ALTER_CLUSTER, CLUSTER_ACTION),
    ApiKey.TXN_OFFSET_COMMIT: (WRITE_TRANSACTIONAL_ID, READ_GROUP, READ_TOPIC),
    ApiKey.DESCRIBE_ACLS: (DESCRIBE_CLUSTER,),
    ApiKey.CREATE_ACLS: (ALTER_CLUSTER,),
    ApiKey.DELETE_ACLS: (ALTER_CLUSTER,),
    ApiKey.DESCRIBE_CONFIGS: DESCRIBING_CONFIGS,
    ApiKey.ALTER_CONFIGS: ALTERING_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: (ALTER_CLUSTER,),
    ApiKey.DESCRIBE_LOG_DIRS: (DESCRIBE_CLUSTER,),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (ALTER_TOPIC,),
    ApiKey.CREATE_DELEGATION_TOKEN: (CREATE_TOKENS,),  # for another user
    ApiKey.RENEW_DELEGATION_TOKEN: (),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (DESCRIBE_TOKEN, DESCRIBE_TOKENS),  # of other users
    ApiKey.DELETE_GROUPS: (DELETE_GROUP,),
    ApiKey.ELECT_LEADERS: (ALTER_CLUSTER,),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ALTERING_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (ALTER_CLUSTER,),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (DESCRIBE_CLUSTER,),
    ApiKey.OFFSET_DELETE: (DELETE_GROUP, READ_TOPIC),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DESCRIBE_CLUSTER_CONFIGS,),
    ApiKey.ALTER_CLIENT_QUOTAS: (ALTER_CLUSTER_CONFIGS,),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (DESCRIBE_CLUSTER,),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (ALTER_CLUSTER,),
    ApiKey.DESCRIBE_QUORUM: (DESCRIBE_CLUSTER,),
    ApiKey.UPDATE_FEATURES: (ALTER_CLUSTER,),
    ApiKey.DESCRIBE_CLUSTER: (DESCRIBE_CLUSTER,),
    ApiKey.DESCRIBE_PRODUCERS: (READ_TOPIC,),
    ApiKey.UNREGISTER_BROKER: (ALTER_CLUSTER,),
    ApiKey.DESCRIBE_TRANSACTIONS: (DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC),
    ApiKey.LIST_TRANSACTIONS: (DESCRIBE_TRANSACTIONAL_ID,),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (READ_GROUP, DESCRIBE_TOPIC),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: (),
    ApiKey.PUSH_TELEMETRY: (),
    ApiKey.LIST_CONFIG_RESOURCES: (DESCRIBE_CLUSTER_CONFIGS,),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (DESCRIBE_TOPIC,),
    ApiKey.SHARE_GROUP_HEARTBEAT: (READ_GROUP, DESCRIBE_TOPIC),
    ApiKey.SHARE_GROUP_DESCRIBE: (DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (READ_GROUP, DESCRIBE_TOPIC, CREATE_CLUSTER, CREATE_TOPIC),
    ApiKey.STREAMS_GROUP_DESCRIBE: (DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: (READ_GROUP,),
    ApiKey.SHARE_FETCH: (READ_GROUP, READ_TOPIC),
    ApiKey.SHARE_ACKNOWLEDGE: (READ_GROUP, READ_TOPIC),
    ApiKey.ADD_RAFT_VOTER: (ALTER_CLUSTER,),
    ApiKey.REMOVE_RAFT_VOTER: (ALTER_CLUSTER,),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (CLUSTER_ACTION,),
    ApiKey.READ_SHARE_GROUP_STATE: (CLUSTER_ACTION,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (CLUSTER_ACTION,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (CLUSTER_ACTION,),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (CLUSTER_ACTION,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (DESCRIBE_GROUP, DESCRIBE_TOPIC),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (READ_GROUP, READ_TOPIC),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (DELETE_GROUP, READ_TOPIC),
    ApiKey.UNREGISTER_CONTROLLER: (ALTER_CLUSTER,),
}

OPERATIONS = {  # by type of resource
    ResourceType.TOPIC: (
        READ_TOPIC,
        WRITE_TOPIC,
        CREATE_TOPIC,
        DELETE_TOPIC,
        ALTER_TOPIC,
        DESCRIBE_TOPIC,
        DESCRIBE_TOPIC_CONFIGS,
        ALTER_TOPIC_CONFIGS,
    ),
    ResourceType.GROUP: (READ_GROUP, DELETE_GROUP, DESCRIBE_GROUP, DESCRIBE_GROUP_CONFIGS, ALTER_GROUP_CONFIGS),
    ResourceType.CLUSTER: (
        CREATE_CLUSTER,
        ALTER_CLUSTER,
        DESCRIBE_CLUSTER,
        CLUSTER_ACTION,
        DESCRIBE_CLUSTER_CONFIGS,
        ALTER_CLUSTER_CONFIGS,
        IDEMPOTENT_WRITE,
    ),
}
