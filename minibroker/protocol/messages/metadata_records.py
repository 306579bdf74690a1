"""The records of the topic `__cluster_metadata`, which contain the cluster's state.

`api_key` is the number of a record's type. The quorum's control records are in `control_records.py`.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, float64, int8, int16, int32, int64, uint16

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"  # the same in every cluster
TOPIC_RESOURCE = 2  # config resource types, as in ConfigRecord and in the requests (org.apache.kafka...ConfigResource)
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """A broker has registered: its incarnation, listeners, features and log directories."""

    broker_id: int32 = field(about="The broker that has registered.")
    is_migrating_zk_broker: bool = field("2+", kip=866, about="Whether it still had its metadata from ZooKeeper.")
    incarnation_id: Uuid = field(
        about="A random id of this start of the broker, by which the controller tells it from an older one."
    )
    broker_epoch: int64 = field(
        about="The record's own offset: it stands for this registration in the broker's later requests."
    )
    end_points: list[BrokerEndpoint] = field(about="The broker's listeners.")
    features: list[BrokerFeature] = field(about="The levels of features that the broker could work at.")
    rack: str | None = field()
    fenced: bool = field(
        default=True, about="Whether it may not serve clients yet, as until it has caught up with the metadata."
    )
    in_controlled_shutdown: bool = field(
        "1+", kip=841, about="Whether it has asked to give its leaderships away before it stops."
    )
    log_dirs: list[Uuid] = field("3+", kip=858, tag=0, about="The ids of its log directories that work.")
    cordoned_log_dirs: list[Uuid] | None = field(
        "4+", kip=1066, tag=1, default=None, about="The ids of the log directories that take no new replicas."
    )

    class BrokerEndpoint(Struct):
        name: str = field(about="What the broker calls the listener, such as EXTERNAL.")
        host: str = field()
        port: uint16 = field()
        security_protocol: int16 = field(about="0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")

    class BrokerFeature(Struct):
        name: str = field(about="The feature, such as metadata.version.")
        min_supported_version: int16 = field(about="The lowest level it could work at.")
        max_supported_version: int16 = field(about="The highest level it could work at.")


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    """A broker was unregistered."""

    broker_id: int32 = field(about="The broker that was forgotten.")
    broker_epoch: int64 = field(about="Which of its registrations it was.")


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    """A broker was fenced. BrokerRegistrationChangeRecord replaces this record."""

    id: int32 = field(about="The broker that may not serve clients any more.")
    epoch: int64 = field(about="Which of its registrations it is.")


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    """A broker was unfenced. BrokerRegistrationChangeRecord replaces this record."""

    id: int32 = field(about="The broker that may serve clients again.")
    epoch: int64 = field(about="Which of its registrations it is.")


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """A registered broker was fenced or unfenced, or is shutting down."""

    broker_id: int32 = field(about="The broker whose registration changes.")
    broker_epoch: int64 = field(about="Which of its registrations it is.")
    fenced: int8 = field(tag=0, about="1 fences the broker, -1 lets it serve clients, 0 is no change.")
    in_controlled_shutdown: int8 = field(
        "1+", kip=841, tag=1, about="1 if the broker is about to stop, 0 for no change."
    )
    log_dirs: list[Uuid] = field(
        "2+", kip=858, tag=2, about="The ids of its log directories that work now; empty for no change."
    )
    cordoned_log_dirs: list[Uuid] | None = field(
        "3+",
        kip=1066,
        tag=3,
        default=None,
        about="The ids of the log directories that take no new replicas; null for no change.",
    )


class UnregisterControllerRecord(Message, api_key=29, versions="0", flexible="0+"):
    """A controller was unregistered."""

    controller_id: int32 = field(about="The controller that was forgotten.")


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    """A controller has registered."""

    controller_id: int32 = field(about="The controller that has registered.")
    incarnation_id: Uuid = field(about="A random id of this start of the controller.")
    zk_migration_ready: bool = field(about="Whether it is set up to take a cluster over from ZooKeeper.")
    end_points: list[ControllerEndpoint] = field(about="The controller's listeners.")
    features: list[ControllerFeature] = field(about="The levels of features that the controller could work at.")

    class ControllerEndpoint(Struct):
        name: str = field(about="What the controller calls the listener, such as CONTROLLER.")
        host: str = field()
        port: uint16 = field()
        security_protocol: int16 = field(about="0 is PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.")

    class ControllerFeature(Struct):
        name: str = field(about="The feature, such as metadata.version.")
        min_supported_version: int16 = field(about="The lowest level it could work at.")
        max_supported_version: int16 = field(about="The highest level it could work at.")


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = field(about="What the topic is called; all later records use its id.")
    topic_id: Uuid = field()


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and configs."""

    topic_id: Uuid = field()


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+", kips={1: 858, 2: 966}):
    """The complete state of a partition."""

    partition_id: int32 = field(default=-1, about="Which partition of the topic, counted from 0.")
    topic_id: Uuid = field()
    replicas: list[int32] = field(about="The brokers that keep a copy; the first one is the preferred leader.")
    isr: list[int32] = field(
        about="The replicas that have kept up with the leader, from which the next leader is chosen."
    )
    removing_replicas: list[int32] = field(about="The brokers that give their copy up at the end of a move.")
    adding_replicas: list[int32] = field(about="The brokers that get a copy by a move.")
    leader: int32 = field(default=-1, about="The broker that leads the partition; -1 if there is none.")
    leader_recovery_state: int8 = field(
        tag=0, about="1 if the leader was elected uncleanly and has not recovered yet, else 0."
    )
    leader_epoch: int32 = field(default=-1)
    partition_epoch: int32 = field(
        default=-1, about="Grows with each change of the partition, so that outdated requests to change it are refused."
    )
    directories: list[Uuid] = field("1+", about="The log directory of each replica, in the order of the replicas.")
    eligible_leader_replicas: list[int32] | None = field(
        "2+",
        tag=1,
        default=None,
        about="Replicas not in sync that have all committed records, so they may lead without loss.",
    )
    last_known_elr: list[int32] | None = field(
        "2+", tag=2, default=None, about="Replicas that were eligible before they failed in an unclean way."
    )


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+", kips={1: 858, 2: 966}):
    """A change of a partition's state. Absent fields do not change."""

    partition_id: int32 = field(default=-1, about="Which partition of the topic, counted from 0.")
    topic_id: Uuid = field()
    isr: list[int32] | None = field(tag=0, default=None, about="The replicas that are in sync now; null for no change.")
    leader: int32 = field(tag=1, default=-2, about="The new leader, -1 for none; -2 if it stays.")
    replicas: list[int32] | None = field(
        tag=2, default=None, about="The brokers that keep a copy now; null for no change."
    )
    removing_replicas: list[int32] | None = field(
        tag=3, default=None, about="The brokers that give their copy up at the end of a move; null for no change."
    )
    adding_replicas: list[int32] | None = field(
        tag=4, default=None, about="The brokers that get a copy by a move; null for no change."
    )
    leader_recovery_state: int8 = field(
        tag=5, default=-1, about="1 after an unclean election, 0 once the leader has recovered; -1 for no change."
    )
    directories: list[Uuid] | None = field(
        "1+",
        tag=8,
        default=None,
        about="The log directory of each replica, in the order of the replicas; null for no change.",
    )
    eligible_leader_replicas: list[int32] | None = field(
        "2+", tag=6, default=None, about="Replicas not in sync that may lead without loss; null for no change."
    )
    last_known_elr: list[int32] | None = field(
        "2+", tag=7, default=None, about="Replicas that were eligible before they failed uncleanly; null for no change."
    )


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all topics, were cleared (KIP-966)."""

    topic_name: str = field(about="The topic whose eligible replicas were cleared; empty for all topics.")


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """A config was set, or removed if its value is null."""

    resource_type: int8 = field(
        about="Whose config it is: 2 a topic's, 4 a broker's, 16 client metrics', 32 a group's."
    )
    resource_name: str = field(about="The topic, broker or group; empty for the configs of all brokers.")
    name: str = field(about="The config, such as retention.ms.")
    value: str | None = field(about="Its value as text; null takes it away, so that the default holds.")


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """A feature's finalized level."""

    name: str = field(about="The feature, such as metadata.version or group.version.")
    feature_level: int16 = field(about="The level the cluster works at from here on.")


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """Producer ids below this one are in use."""

    broker_id: int32 = field(about="The broker that got the last block of producer ids.")
    broker_epoch: int64 = field(default=-1, about="Which of its registrations it was.")
    next_producer_id: int64 = field(about="The first id of the next block: all below it have been given away.")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[EntityData] = field(
        about="The user, client id or address that the quota is for, or several of these together."
    )
    key: str = field(about="Which limit, such as producer_byte_rate or request_percentage.")
    value: float64 = field(about="How much is allowed, in the limit's own unit.")
    remove: bool = field(about="Whether the limit is taken away, and the value does not matter.")

    class EntityData(Struct):
        entity_type: str = field(about='Which part of the entity it is: "user", "client-id" or "ip".')
        entity_name: str | None = field(about="Its name; null for all that have no quota of their own.")


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential."""

    name: str = field(about="The user who can log in by it.")
    mechanism: int8 = field(about="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")
    salt: bytes = field(about="Random bytes that were hashed with the password.")
    stored_key: bytes = field(about="What the client's proof is checked against; the password cannot be had from it.")
    server_key: bytes = field(about="What the broker proves with that it knows the credential, too.")
    iterations: int32 = field(about="How often the password was hashed.")


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was removed."""

    name: str = field(about="The user who loses the credential.")
    mechanism: int8 = field(about="1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512.")


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    """A delegation token."""

    owner: str = field(about='The user the token stands for, such as "User:alice".')
    requester: str = field(about="Who has asked for the token.")
    renewers: list[str] = field(about="Who else may renew the token, besides its owner.")
    issue_timestamp: int64 = field(about="When the token was made.")
    max_timestamp: int64 = field(about="When the token ends even if it is renewed.")
    expiration_timestamp: int64 = field(about="When the token ends unless it is renewed.")
    token_id: str = field(about="What the token is called; its secret is computed from it and the brokers' own secret.")


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = field(about="The token that has ended.")


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    """An ACL."""

    id: Uuid = field(about="A random id, by which a later record removes the ACL.")
    resource_type: int8 = field(
        about="Which kind of resource: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 token, 7 user."
    )
    resource_name: str = field(
        about='The resource the ACL is for, or the beginning of its name if the pattern is prefixed; "*" is all.'
    )
    pattern_type: int8 = field(about="3 if the name is meant literally, 4 if it is the beginning of names.")
    principal: str = field(about='The user the ACL is for, such as "User:alice"; "User:*" is everybody.')
    host: str = field(about='The client address the ACL is for; "*" is all.')
    operation: int8 = field(
        about="What is allowed or denied: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, and so on."
    )
    permission_type: int8 = field(about="2 denies, which always wins, and 3 allows.")


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    """An ACL was removed."""

    id: Uuid = field(about="The id of the ACL that was removed.")


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """No change. It is written regularly, so that followers see that the leader is alive."""


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+", kips={0: 868}):
    """The beginning of a transaction: its records are valid only after an EndTransactionRecord (KIP-868)."""

    name: str | None = field(
        tag=0, default=None, about="What the records up to the end belong to, for people; null if it has no name."
    )


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    """The end of a transaction, whose records are valid now."""


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+", kips={0: 868}):
    """The end of a transaction, whose records are void."""

    reason: str | None = field(tag=0, default=None, about="Why they are void, for people.")


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+", kips={0: 866}):
    """The state of a migration from ZooKeeper."""

    zk_migration_state: int8 = field(about="How far a migration from ZooKeeper has come; 0 is none.")


METADATA_KINDS: dict[int, type[Message]] = {
    kind.api_key: kind
    for kind in list(vars().values())
    if isinstance(kind, type) and issubclass(kind, Message) and kind.api_key >= 0
}
