"""The table of supported APIs: their versions, and the files of their handlers.

A file is imported with the first request for one of its APIs, or earlier in idle time (`late_imports`), so that the
start is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any, Final, TypeVar

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.fields import parse_versions

FAMILIES: Final = {
    "acl_requests": {ApiKey.DESCRIBE_ACLS: "0-3", ApiKey.CREATE_ACLS: "0-3", ApiKey.DELETE_ACLS: "0-3"},
    "alter_configs": {ApiKey.ALTER_CONFIGS: "0-2", ApiKey.INCREMENTAL_ALTER_CONFIGS: "0-1"},
    "api_versions": {ApiKey.API_VERSIONS: "0-5"},
    "quota_requests": {ApiKey.DESCRIBE_CLIENT_QUOTAS: "0-1", ApiKey.ALTER_CLIENT_QUOTAS: "0-1"},
    "cluster_description": {ApiKey.DESCRIBE_CLUSTER: "0-2"},
    "committed_offsets": {ApiKey.OFFSET_COMMIT: "0-10", ApiKey.OFFSET_FETCH: "0-10"},
    "config_resources": {ApiKey.LIST_CONFIG_RESOURCES: "0-1"},
    "configs": {ApiKey.DESCRIBE_CONFIGS: "0-4"},
    "consumer_groups": {ApiKey.CONSUMER_GROUP_HEARTBEAT: "0-1", ApiKey.CONSUMER_GROUP_DESCRIBE: "0-1"},
    "delegation_tokens": {
        ApiKey.CREATE_DELEGATION_TOKEN: "0-3",
        ApiKey.RENEW_DELEGATION_TOKEN: "0-2",
        ApiKey.EXPIRE_DELEGATION_TOKEN: "0-2",
        ApiKey.DESCRIBE_DELEGATION_TOKEN: "0-3",
    },
    "delete_records": {ApiKey.DELETE_RECORDS: "0-2"},
    "leader_elections": {ApiKey.ELECT_LEADERS: "0-2"},
    "feature_updates": {ApiKey.UPDATE_FEATURES: "0-2"},
    "fetch": {ApiKey.FETCH: "0-18"},
    "find_coordinator": {ApiKey.FIND_COORDINATOR: "0-6"},
    "group_listing": {ApiKey.DESCRIBE_GROUPS: "0-6", ApiKey.LIST_GROUPS: "0-5", ApiKey.DELETE_GROUPS: "0-3"},
    "group_membership": {
        ApiKey.JOIN_GROUP: "0-9",
        ApiKey.SYNC_GROUP: "0-5",
        ApiKey.HEARTBEAT: "0-4",
        ApiKey.LEAVE_GROUP: "0-5",
    },
    "log_directories": {ApiKey.DESCRIBE_LOG_DIRS: "0-5", ApiKey.ALTER_REPLICA_LOG_DIRS: "0-2"},
    "log_offsets": {ApiKey.LIST_OFFSETS: "0-11", ApiKey.OFFSET_FOR_LEADER_EPOCH: "0-4"},
    "metadata": {ApiKey.METADATA: "0-13"},
    "offset_deletion": {ApiKey.OFFSET_DELETE: "0"},
    "produce": {ApiKey.PRODUCE: "0-13"},
    "producer_ids": {ApiKey.INIT_PRODUCER_ID: "0-6"},
    "quorum": {ApiKey.DESCRIBE_QUORUM: "0-2", ApiKey.ADD_RAFT_VOTER: "0-1", ApiKey.REMOVE_RAFT_VOTER: "0"},
    "partition_reassignments": {ApiKey.ALTER_PARTITION_REASSIGNMENTS: "0-1", ApiKey.LIST_PARTITION_REASSIGNMENTS: "0"},
    "sasl": {ApiKey.SASL_HANDSHAKE: "0-1", ApiKey.SASL_AUTHENTICATE: "0-2"},
    "scram_credentials": {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: "0", ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "0"},
    "share_fetch": {ApiKey.SHARE_FETCH: "1-2", ApiKey.SHARE_ACKNOWLEDGE: "1-2"},
    "share_groups": {
        ApiKey.SHARE_GROUP_HEARTBEAT: "1",
        ApiKey.SHARE_GROUP_DESCRIBE: "1",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: "0-1",
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: "0",
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: "0",
    },
    "share_state": {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: "0",
        ApiKey.READ_SHARE_GROUP_STATE: "0",
        ApiKey.WRITE_SHARE_GROUP_STATE: "0-1",
        ApiKey.DELETE_SHARE_GROUP_STATE: "0",
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: "0-1",
    },
    "streams_groups": {
        ApiKey.STREAMS_GROUP_HEARTBEAT: "0-1",
        ApiKey.STREAMS_GROUP_DESCRIBE: "0-1",
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: "0",
    },
    "telemetry": {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "0", ApiKey.PUSH_TELEMETRY: "0"},
    "topic_partitions": {ApiKey.DESCRIBE_TOPIC_PARTITIONS: "0"},
    "topics": {ApiKey.CREATE_TOPICS: "0-7", ApiKey.DELETE_TOPICS: "0-6", ApiKey.CREATE_PARTITIONS: "0-3"},
    "transaction_listing": {
        ApiKey.DESCRIBE_TRANSACTIONS: "0",
        ApiKey.LIST_TRANSACTIONS: "0-2",
        ApiKey.DESCRIBE_PRODUCERS: "0",
    },
    "transactional_offsets": {ApiKey.TXN_OFFSET_COMMIT: "0-6"},
    "transactions": {
        ApiKey.ADD_PARTITIONS_TO_TXN: "0-5",
        ApiKey.ADD_OFFSETS_TO_TXN: "0-4",
        ApiKey.END_TXN: "0-5",
        ApiKey.WRITE_TXN_MARKERS: "0-2",
    },
    "unregistration": {ApiKey.UNREGISTER_BROKER: "0", ApiKey.UNREGISTER_CONTROLLER: "0"},
}

AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Any])


class ServedApi:
    """A supported API. `durable`, as `handles` has it, is known once `handler` was used."""

    durable = False

    def __init__(self, key: ApiKey, versions: range, family: str) -> None:
        self.key = key
        self.versions = versions
        self._family = family

    @cached_property
    def handler(self) -> Callable[..., Any]:
        """Return the handler; its file, which is imported now, registers it."""
        import_module(f"minibroker.broker.handlers.{self._family}")
        handler: Callable[..., Any] = vars(self)["handler"]
        return handler


SERVED: Final[dict[int, ServedApi]] = {
    key: ServedApi(key, parse_versions(text), family) for family, keys in FAMILIES.items() for key, text in keys.items()
}


def handles(key: ApiKey, *, durable: bool = False) -> Callable[[AnyHandler], AnyHandler]:
    """Return a decorator that registers the handler of an API, which has a row in `FAMILIES`.

    `durable` says that the request may change the cluster's metadata: then it is answered once the change is synced, as
    Kafka's controller does. If that fails, it is unknown whether a start will find the change, and the connection is
    closed.
    """

    def register_handler(handler: AnyHandler) -> AnyHandler:
        served = SERVED[key]
        if "handler" in vars(served):
            raise ValueError(f"{key.name} has a handler already")
        served.handler, served.durable = handler, durable
        return handler

    return register_handler
