"""The records of the topic `__cluster_metadata`, which contain the cluster's state.

`api_key` is the number of a record's type. The quorum's control records are in `control_records.py`.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, float64, int8, int16, int32, int64, uint16


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """A broker has registered: its incarnation, listeners, features and log directories."""

    broker_id: int32 = field()
    is_migrating_zk_broker: bool = field("2+")
    incarnation_id: Uuid = field()
    broker_epoch: int64 = field()
    end_points: list[BrokerEndpoint] = field()
    features: list[BrokerFeature] = field()
    rack: str | None = field()
    fenced: bool = field(default=True)
    in_controlled_shutdown: bool = field("1+")
    log_dirs: list[Uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = field("4+", tag=1, default=None)

    class BrokerEndpoint(Struct):
        name: str = field()
        host: str = field()
        port: uint16 = field()
        security_protocol: int16 = field()

    class BrokerFeature(Struct):
        name: str = field()
        min_supported_version: int16 = field()
        max_supported_version: int16 = field()


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: int32 = field()
    broker_epoch: int64 = field()


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    """A broker was fenced. BrokerRegistrationChangeRecord replaces this record."""

    id: int32 = field()
    epoch: int64 = field()


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    """A broker was unfenced. BrokerRegistrationChangeRecord replaces this record."""

    id: int32 = field()
    epoch: int64 = field()


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """A registered broker was fenced or unfenced, or is shutting down."""

    broker_id: int32 = field()
    broker_epoch: int64 = field()
    fenced: int8 = field(tag=0)
    in_controlled_shutdown: int8 = field("1+", tag=1)
    log_dirs: list[Uuid] = field("2+", tag=2)
    cordoned_log_dirs: list[Uuid] | None = field("3+", tag=3, default=None)


class UnregisterControllerRecord(Message, api_key=29, versions="0", flexible="0+"):
    """A controller was unregistered."""

    controller_id: int32 = field()


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    """A controller has registered."""

    controller_id: int32 = field()
    incarnation_id: Uuid = field()
    zk_migration_ready: bool = field()
    end_points: list[ControllerEndpoint] = field()
    features: list[ControllerFeature] = field()

    class ControllerEndpoint(Struct):
        name: str = field()
        host: str = field()
        port: uint16 = field()
        security_protocol: int16 = field()

    class ControllerFeature(Struct):
        name: str = field()
        min_supported_version: int16 = field()
        max_supported_version: int16 = field()


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = field()
    topic_id: Uuid = field()


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and configs."""

    topic_id: Uuid = field()


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    """The complete state of a partition."""

    partition_id: int32 = field(default=-1)
    topic_id: Uuid = field()
    replicas: list[int32] = field()
    isr: list[int32] = field()
    removing_replicas: list[int32] = field()
    adding_replicas: list[int32] = field()
    leader: int32 = field(default=-1)
    leader_recovery_state: int8 = field(tag=0)
    leader_epoch: int32 = field(default=-1)
    partition_epoch: int32 = field(default=-1)
    directories: list[Uuid] = field("1+")
    eligible_leader_replicas: list[int32] | None = field("2+", tag=1, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=2, default=None)


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """A change of a partition's state. Absent fields do not change."""

    partition_id: int32 = field(default=-1)
    topic_id: Uuid = field()
    isr: list[int32] | None = field(tag=0, default=None)
    leader: int32 = field(tag=1, default=-2)
    replicas: list[int32] | None = field(tag=2, default=None)
    removing_replicas: list[int32] | None = field(tag=3, default=None)
    adding_replicas: list[int32] | None = field(tag=4, default=None)
    leader_recovery_state: int8 = field(tag=5, default=-1)
    directories: list[Uuid] | None = field("1+", tag=8, default=None)
    eligible_leader_replicas: list[int32] | None = field("2+", tag=6, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=7, default=None)


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all topics, were cleared (KIP-966)."""

    topic_name: str = field()


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """A config was set, or removed if its value is null."""

    resource_type: int8 = field()
    resource_name: str = field()
    name: str = field()
    value: str | None = field()


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """A feature's finalized level."""

    name: str = field()
    feature_level: int16 = field()


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """Producer ids below this one are in use."""

    broker_id: int32 = field()
    broker_epoch: int64 = field(default=-1)
    next_producer_id: int64 = field()


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[EntityData] = field()
    key: str = field()
    value: float64 = field()
    remove: bool = field()

    class EntityData(Struct):
        entity_type: str = field()
        entity_name: str | None = field()


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential."""

    name: str = field()
    mechanism: int8 = field()
    salt: bytes = field()
    stored_key: bytes = field()
    server_key: bytes = field()
    iterations: int32 = field()


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was removed."""

    name: str = field()
    mechanism: int8 = field()


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    """A delegation token."""

    owner: str = field()
    requester: str = field()
    renewers: list[str] = field()
    issue_timestamp: int64 = field()
    max_timestamp: int64 = field()
    expiration_timestamp: int64 = field()
    token_id: str = field()


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = field()


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    """An ACL."""

    id: Uuid = field()
    resource_type: int8 = field()
    resource_name: str = field()
    pattern_type: int8 = field()
    principal: str = field()
    host: str = field()
    operation: int8 = field()
    permission_type: int8 = field()


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    """An ACL was removed."""

    id: Uuid = field()


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """No change. It is written regularly, so that followers see that the leader is alive."""


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    """The beginning of a transaction: its records are valid only after an EndTransactionRecord (KIP-868)."""

    name: str | None = field(tag=0, default=None)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """The end of a transaction, whose records are valid now."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    """The end of a transaction, whose records are void."""

    reason: str | None = field(tag=0, default=None)


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    """The state of a migration from ZooKeeper."""

    zk_migration_state: int8 = field()
