"""The table of settings, one line each: Kafka's name, type, default, allowed values, scope and meaning.

It has facts, and the rules for single values. `configuration` reads values from their sources, and `settings` decides
which one applies. Names and defaults are those of Apache Kafka 4.4; `kafka_default` marks where ours differ.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final

from minibroker.broker.configs.valid_values import (
    AnyCaseOf,
    AuthorizerClass,
    ConnectionCounts,
    FormatVersion,
    NonEmpty,
    OneOf,
    Principals,
    Range,
    ReplicaList,
    ValidValues,
)
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.records.batch import MAX_RECORD_BYTES

# The typed value of a setting: bool, int, float, str, a tuple of str, or None where a setting has no default.
SettingValue = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The type of a setting, numbered as in DescribeConfigs (KIP-569); UNKNOWN for names that the table lacks."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class SettingScope(Enum):
    """Where a setting can be set: for the broker, for a topic, or for both under two names."""

    BROKER = "broker"
    TOPIC = "topic"
    BOTH = "both"


class UpdateMode(Enum):
    """Whether a broker setting can change at run time, and if so, for one broker or for all (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Setting(NamedTuple):
    """A line of the table.

    `name` is the broker's name, or the topic's if the scope is TOPIC; `topic` is the topic's name, or None if the scope
    is BROKER. `fallbacks` are broker settings to use, in order, while this one is unset: (name, factor to this one's
    unit). A setting that is validated, stored and described, but has no effect, says in `inert` why; setting it logs a
    warning. `kafka_default` is Kafka's default where ours differs, or "required" if Kafka requires a value. `in_kafka`
    is False if Apache Kafka 4.4 does not have the setting.
    """

    name: str
    type: ConfigType
    default: SettingValue
    documentation: str
    valid: ValidValues | None = None
    scope: SettingScope = SettingScope.BROKER
    topic: str | None = None
    fallbacks: tuple[tuple[str, int], ...] = ()
    update: UpdateMode = UpdateMode.READ_ONLY
    inert: str = ""
    internal: bool = False
    kafka_default: SettingValue = None
    in_kafka: bool = True

    @property
    def full_documentation(self) -> str:
        """The documentation, with the reason why the setting has no effect."""
        return f"{self.documentation} No effect: {self.inert}.".strip() if self.inert else self.documentation

    @property
    def has_effect(self) -> bool:
        """Whether the setting has an effect."""
        return not self.inert

    @property
    def is_sensitive(self) -> bool:
        """Whether the value is hidden; that of an unknown name is, as it may be a password."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def is_dynamic(self) -> bool:
        """Whether the setting can change at run time."""
        return self.update is not UpdateMode.READ_ONLY


BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
SHORT, DOUBLE, LIST = ConfigType.SHORT, ConfigType.DOUBLE, ConfigType.LIST
PASSWORD, CLASS = ConfigType.PASSWORD, ConfigType.CLASS
CLUSTER_WIDE, PER_BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER

NOT_TIERED: Final = "tiered storage is missing"
ONE_LOG: Final = "the replicas of a partition share one log"
FROM_ZERO: Final = Range(0)
FROM_ONE: Final = Range(1)
NON_EMPTY: Final = NonEmpty()
LONG_MAX: Final = (1 << 63) - 1
DOUBLE_MAX: Final = 1.7976931348623157e308
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
CODECS: Final = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPES: Final = OneOf(("CreateTime", "LogAppendTime"))
MIGRATION_POLICIES: Final = AnyCaseOf(("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL"))
REBALANCE_PROTOCOLS: Final = OneOf(("consumer", "classic", "share", "streams"), some=True)
POLICIES: Final = OneOf(("compact", "delete"))
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def _make_topic_and_broker_setting(
    topic: str,
    broker: str,
    type: ConfigType,
    default: SettingValue,
    documentation: str,
    valid: Any = None,
    **options: Any,
) -> Setting:
    """Return a topic setting whose default is a dynamic broker setting."""
    return Setting(
        broker, type, default, documentation, valid, SettingScope.BOTH, topic, update=CLUSTER_WIDE, **options
    )


def _make_topic_setting(
    name: str, type: ConfigType, default: SettingValue, documentation: str, valid: Any = None, **options: Any
) -> Setting:
    """Return a setting of topics only."""
    return Setting(name, type, default, documentation, valid, SettingScope.TOPIC, name, **options)


# fmt: off
SETTINGS: Final[tuple[Setting, ...]] = (
    # Who this broker is and where it listens.
    Setting("node.id", INT, 1, "The id of this broker; with several nodes, the id of the first.", FROM_ZERO, kafka_default="required"),
    Setting("broker.id", INT, -1, "An older name of node.id; if both are set, they must be equal."),
    Setting("broker.rack", STRING, None, "The rack of this broker, which Metadata reports, and over which the replicas of new partitions are spread; with several nodes, a comma-separated list with one rack per node."),
    Setting("replica.selector.class", STRING, None, "Which replica consumers read from: the leader or, with RackAwareReplicaSelector, a replica in their own rack (KIP-392)."),
    Setting("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), "The addresses to listen on, as NAME://host:port; with port 0 the operating system chooses a free port. One that is added at run time is open, but not advertised; those that are advertised cannot be removed.", NON_EMPTY, kafka_default=("PLAINTEXT://:9092",), update=PER_BROKER),
    Setting("advertised.listeners", LIST, None, "The addresses that clients connect to; by default those of listeners.", NON_EMPTY),
    Setting("listener.security.protocol.map", STRING, PROTOCOL_MAP, "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. That of a listener which is open cannot change.", update=PER_BROKER),
    Setting("controller.listener.names", LIST, None, "The listeners of a KRaft controller. They are not opened: the controller is part of this process.", NON_EMPTY, kafka_default="required"),
    Setting("inter.broker.listener.name", STRING, None, "The listener for brokers. If there are others, it is exempt from the limits of connections that a broker has in total; by default the one that is named as security.inter.broker.protocol."),
    Setting("security.inter.broker.protocol", STRING, "PLAINTEXT", "The name of the listener for brokers, if inter.broker.listener.name is not set.", OneOf(PROTOCOLS)),
    # Connections.
    Setting("connections.max.idle.ms", LONG, 600_000, "Connections that are idle for this long are closed."),
    Setting("connections.max.stall.ms", LONG, 30_000, "Connections are closed when for this long they send no more of a request that they have begun, read nothing of answers above 64 KiB, or do not authenticate.", FROM_ONE, in_kafka=False),
    Setting("max.connections", INT, 2_147_483_647, "The largest number of connections of a broker; further ones wait until others are closed. A listener may have its own number as well, as listener.name.NAME.max.connections.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("max.connections.per.ip", INT, 2_147_483_647, "The largest number of connections from one address; further ones are closed.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("max.connections.per.ip.overrides", STRING, "", "Other such numbers for some addresses, as a comma-separated list of address:number.", ConnectionCounts(), update=CLUSTER_WIDE),
    Setting("max.connection.creation.rate", INT, 2_147_483_647, "The largest number of new connections a second; further ones wait. A listener may have its own number as well.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("socket.listen.backlog.size", INT, 50, "The largest number of connections that wait to be accepted on a listener.", FROM_ONE),
    Setting("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF of the sockets; -1 for the operating system's default."),
    Setting("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF of the sockets; -1 for the operating system's default."),
    Setting("socket.busy.poll.us", INT, -1, "For how many microseconds after a read the loop asks its sockets again instead of going to sleep, which answers a client that waits for each answer sooner; -1 for 60 where more than one CPU may be used and for 0 elsewhere.", Range(-1), in_kafka=False),
    Setting("socket.request.max.bytes", INT, 104_857_600, "The largest size of a request; a larger one closes its connection.", FROM_ONE),
    Setting("queued.max.request.bytes", LONG, -1, "How many bytes of incomplete requests above 64 KiB are held in memory before the broker stops reading more; -1 for 256 MiB."),
    # SASL. Each can be set for a listener, or for a mechanism of it: listener.name.<listener>.<mechanism>.<setting>.
    Setting("sasl.enabled.mechanisms", LIST, ("GSSAPI",), "The SASL mechanisms of clients: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. GSSAPI is not supported.", update=PER_BROKER),
    Setting("sasl.server.max.receive.size", INT, 524_288, "The largest request of a client before it has authenticated."),
    Setting("connection.failed.authentication.delay.ms", INT, 100, "The delay before a client with failed authentication is answered and disconnected.", FROM_ZERO),
    Setting("connections.max.reauth.ms", LONG, 0, "The time after which clients must authenticate again (KIP-368); 0 for never, unless a token expires."),
    Setting("delegation.token.secret.key", PASSWORD, None, "The key from which the secrets of delegation tokens follow (KIP-48), the same on all brokers; without it there are no tokens."),
    Setting("delegation.token.max.lifetime.ms", LONG, 604_800_000, "The time after which a delegation token can no longer be renewed.", FROM_ONE),
    Setting("delegation.token.expiry.time.ms", LONG, 86_400_000, "The time after which a delegation token expires unless it is renewed, and how long a renewal lasts at most.", FROM_ONE),
    Setting("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, "How often expired delegation tokens are removed.", FROM_ONE),
    Setting("sasl.server.callback.handler.class", CLASS, None, "For OAUTHBEARER: org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler for signed tokens; if unset, unsecured tokens are accepted."),
    Setting("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "The URL of the keys that sign tokens (JWKS), with file:, http: or https:."),
    Setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, "How often these keys are read again."),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "The delay before keys are read again after they could not be read, or a key was not found; it doubles with each failure."),
    Setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000, "The longest such delay."),
    Setting("sasl.oauthbearer.expected.audience", LIST, (), "The audiences, one of which a token must name (aud)."),
    Setting("sasl.oauthbearer.expected.issuer", STRING, None, "The required issuer of a token (iss)."),
    Setting("sasl.oauthbearer.allow.unverified.audience", BOOLEAN, False, "Whether tokens may name any audience, or none, if none is expected; without this the broker does not start."),
    Setting("sasl.oauthbearer.allow.unverified.issuer", BOOLEAN, False, "Whether tokens may be of any issuer if none is expected; without this the broker does not start."),
    Setting("sasl.oauthbearer.clock.skew.seconds", INT, 30, "The largest difference between the clocks of the broker and the issuer."),
    Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim of a token with the principal's name."),
    Setting("sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim of a token with its scope."),
    # The test kit, which serves if one of these is set.
    Setting("test.security", STRING, None, "The protocol of the listener PLAINTEXT, with certificates, users and ACLs of the test kit (docs/testing-security.md).", OneOf(PROTOCOLS), in_kafka=False),
    Setting("test.users", PASSWORD, None, "Users of test.security, as NAME:PASSWORD,...", in_kafka=False),
    Setting("test.issuer", STRING, None, "Where the issuer of OAuth tokens of test.security listens, as HOST:PORT or PORT; by default on a free port of 127.0.0.1.", in_kafka=False),
    # Quotas of clients.
    Setting("quota.window.num", INT, 11, "The number of windows for measuring a client's bytes and request time.", FROM_ONE),
    Setting("quota.window.size.seconds", INT, 1, "The length of each of these windows.", FROM_ONE),
    Setting("controller.quota.window.num", INT, 11, "The number of windows for which a client may save up partition changes.", FROM_ONE),
    Setting("controller.quota.window.size.seconds", INT, 1, "The length of each of these windows.", FROM_ONE),
    # Rights.
    Setting("authorizer.class.name", STRING, "", "The authorizer, which lets clients do only what ACLs allow. If unset, clients may do everything.", AuthorizerClass()),
    Setting("super.users", STRING, "", "Principals that may do everything, regardless of ACLs: User:a;User:b.", Principals(), in_kafka=False, kafka_default="a setting of its authorizer"),
    Setting("allow.everyone.if.no.acl.found", BOOLEAN, False, "Whether principals may do everything with a resource without ACLs.", in_kafka=False, kafka_default="a setting of its authorizer"),
    # TLS. Each can be set for one listener, as listener.name.<listener>.<setting>, with the listener in lower case.
    Setting("ssl.keystore.type", STRING, "JKS", "The format of the key store: PEM, or PKCS12 or JKS, which both mean either.", update=PER_BROKER),
    Setting("ssl.keystore.location", STRING, None, "The file with the broker's private key and certificates.", update=PER_BROKER),
    Setting("ssl.keystore.password", PASSWORD, None, "The password of the key store file; PEM has none.", update=PER_BROKER),
    Setting("ssl.keystore.key", PASSWORD, None, "The broker's private key, in PEM, instead of a file.", update=PER_BROKER),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None, "The certificates for ssl.keystore.key, in PEM, the broker's own first.", update=PER_BROKER),
    Setting("ssl.key.password", PASSWORD, None, "The password of an encrypted private key in PEM.", update=PER_BROKER),
    Setting("ssl.truststore.type", STRING, "JKS", "The format of the trust store: PEM, or PKCS12 or JKS, which both mean either.", update=PER_BROKER),
    Setting("ssl.truststore.location", STRING, None, "The file with the trusted certificates for verifying clients; by default those of the machine.", update=PER_BROKER),
    Setting("ssl.truststore.password", PASSWORD, None, "The password of the trust store file; PEM has none.", update=PER_BROKER),
    Setting("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates, in PEM, instead of a file.", update=PER_BROKER),
    Setting("ssl.client.auth", STRING, "none", "Whether clients must present a certificate: required, requested (optional), or none. On SASL_SSL only a listener's own value counts.", OneOf(("required", "requested", "none")), update=PER_BROKER),
    Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "The enabled versions of TLS, TLSv1.2 and TLSv1.3; others are rejected.", update=PER_BROKER),
    Setting("ssl.protocol", STRING, "TLSv1.3", "The highest version of TLS, if ssl.enabled.protocols is empty.", update=PER_BROKER),
    Setting("ssl.cipher.suites", LIST, (), "The cipher suites, by their names in Java; if empty, OpenSSL's defaults.", update=PER_BROKER),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", "The rules that map the name in a client's certificate to its principal: DEFAULT, or RULE:pattern/replacement/[LU]; the first match applies."),
    Setting("ssl.allow.dn.changes", BOOLEAN, False, "Whether a key store that replaces another at run time may have another distinguished name."),
    Setting("ssl.allow.san.changes", BOOLEAN, False, "Whether it may lack alternative names of the previous one."),
    # Topics.
    Setting("auto.create.topics.enable", BOOLEAN, True, "Whether topics are created when a client first uses them."),
    Setting("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted."),
    Setting("num.partitions", INT, 1, "The number of partitions of a topic that is created without one.", FROM_ONE),
    Setting("default.replication.factor", INT, 1, "The number of replicas of a topic that is created without one."),
    Setting("max.request.partition.size.limit", INT, 2000, "The largest number of partitions in one answer to DescribeTopicPartitions.", FROM_ONE),
    # Fetch.
    Setting("fetch.max.bytes", INT, 57_671_680, "The largest number of bytes of records in one answer to Fetch, whatever the client asks for.", Range(1024)),
    Setting("max.incremental.fetch.session.cache.slots", INT, 1000, "The largest number of fetch sessions; fewer, if together they have more than about a million partitions.", FROM_ZERO),
    # The log.
    Setting("log.dir", LIST, ("minibroker-data",), "The data directory, if log.dirs is unset.", NON_EMPTY, kafka_default=("/tmp/kafka-logs",)),
    Setting("log.dirs", LIST, None, "The data directories; a new log goes to the one with the fewest logs. Several nodes share the directories, as they share the logs.", NON_EMPTY),
    Setting("cordoned.log.dirs", LIST, (), "Which of log.dirs take no new replicas; * is all of them. Each of several nodes has its own list, for the directories that they share.", update=PER_BROKER),
    Setting("accept.lost.metadata", BOOLEAN, False, "Whether to start although the metadata log is damaged or has lost its end. Logs that it no longer knows are renamed and not served, see docs/durability.md.", in_kafka=False),
    _make_topic_and_broker_setting("segment.bytes", "log.segment.bytes", INT, 1 << 30, "The largest size of a segment file; the append that would exceed it begins a new segment.", Range(1 << 20)),
    _make_topic_and_broker_setting("segment.ms", "log.roll.ms", LONG, None, "The age of a segment's first record at which the next append begins a new segment.", FROM_ONE, fallbacks=(("log.roll.hours", HOUR_MS),)),
    Setting("log.roll.hours", INT, 168, "log.roll.ms in hours, if that is unset.", FROM_ONE),
    _make_topic_and_broker_setting("segment.jitter.ms", "log.roll.jitter.ms", LONG, None, "The largest random time by which a segment is closed earlier.", FROM_ZERO, fallbacks=(("log.roll.jitter.hours", HOUR_MS),)),
    Setting("log.roll.jitter.hours", INT, 0, "log.roll.jitter.ms in hours, if that is unset.", FROM_ZERO),
    _make_topic_and_broker_setting("segment.index.bytes", "log.index.size.max.bytes", INT, 10_485_760, "The size of an index at which its segment is closed.", Range(4)),
    _make_topic_and_broker_setting("index.interval.bytes", "log.index.interval.bytes", INT, 4096, "The least number of bytes of records between two index entries.", FROM_ZERO),
    _make_topic_and_broker_setting("file.delete.delay.ms", "log.segment.delete.delay.ms", LONG, 60_000, "How long a deleted segment's files stay on the disk.", FROM_ZERO),
    _make_topic_and_broker_setting("preallocate", "log.preallocate", BOOLEAN, False, "Whether a segment's file is created at its full size, filled with zeros, until the segment is closed."),
    _make_topic_and_broker_setting("flush.messages", "log.flush.interval.messages", LONG, LONG_MAX, "The number of records after which the log is flushed; the producer of the last one is answered after the flush.", FROM_ONE),
    _make_topic_and_broker_setting("flush.ms", "log.flush.interval.ms", LONG, None, "The time after which appended records are flushed.", FROM_ZERO, fallbacks=(("log.flush.scheduler.interval.ms", 1),)),
    Setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for a due flush; by default as often as the shortest flush.ms requires."),
    Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often the offsets up to which logs are flushed are recorded; a start after a crash reads only what follows them.", FROM_ZERO),
    Setting("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, "How often the start offsets of logs with deleted records are recorded.", FROM_ZERO),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "How often the high watermarks are recorded."),
    Setting("log.initial.task.delay.ms", LONG, 30_000, "How long after the start retention, flushing and checkpoints begin.", FROM_ZERO, internal=True),
    Setting("producer.id.expiration.ms", INT, 86_400_000, "How long a partition remembers an inactive producer, to recognise duplicates.", FROM_ONE, update=CLUSTER_WIDE),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000, "How often silent producers are looked for.", FROM_ONE, internal=True),
    # Records.
    _make_topic_and_broker_setting("max.message.bytes", "message.max.bytes", INT, 1_048_588, "The largest record batch that is accepted, after the producer's compression.", FROM_ZERO),
    _make_topic_and_broker_setting("max.decompressed.message.bytes", "max.decompressed.message.bytes", INT, MAX_RECORD_BYTES, "The largest record of a compressed batch, decompressed, that is accepted, compacted and found by its time; the default is no limit.", Range(1, MAX_RECORD_BYTES)),
    _make_topic_and_broker_setting("compression.type", "compression.type", STRING, "producer", "The codec in which batches are stored; producer keeps the producer's codec.", CODECS),
    _make_topic_and_broker_setting("compression.gzip.level", "compression.gzip.level", INT, -1, "The level for gzip when the broker compresses; -1 for the codec's default.", Range(1, 9, or_equal_to=-1)),
    _make_topic_and_broker_setting("compression.lz4.level", "compression.lz4.level", INT, 9, "The level for lz4 when the broker compresses.", Range(1, 17)),
    _make_topic_and_broker_setting("compression.zstd.level", "compression.zstd.level", INT, 3, "The level for zstd when the broker compresses.", Range(-131_072, 22)),
    _make_topic_and_broker_setting("message.format.version", "log.message.format.version", STRING, "3.0-IV1", "The version of Kafka whose message format is used to store records: format 0 before 0.10.0, 1 before 0.11.0, 2 since.", FormatVersion(), in_kafka=False),
    _make_topic_and_broker_setting("message.timestamp.type", "log.message.timestamp.type", STRING, "CreateTime", "Whether a record's timestamp is set by the producer or is the time of the append.", TIMESTAMP_TYPES),
    _make_topic_and_broker_setting("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG, LONG_MAX, "How far a record's timestamp may lie in the past.", FROM_ZERO),
    _make_topic_and_broker_setting("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", LONG, HOUR_MS, "How far a record's timestamp may lie in the future.", FROM_ZERO),
    _make_topic_and_broker_setting("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, "An older name for both of these; applies where they have their defaults.", FROM_ZERO, in_kafka=False),
    _make_topic_setting("record.attributes.elide", BOOLEAN, False, "Whether batches are stored without the unused attributes byte of each record. Once set, it can be set to false, but not removed.", in_kafka=False),
    _make_topic_and_broker_setting("min.insync.replicas", "min.insync.replicas", INT, 1, "The number of replicas that must be in sync for a produce with acks=all.", FROM_ONE),
    # Retention and compaction. The policy also decides whether records need keys.
    _make_topic_and_broker_setting("cleanup.policy", "log.cleanup.policy", LIST, ("delete",), "What is done with old records: delete, compact, or both; with compact, records need keys.", POLICIES),
    _make_topic_and_broker_setting("retention.ms", "log.retention.ms", LONG, None, "How long records are kept; -1 for ever.", Range(-1), fallbacks=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))),
    Setting("log.retention.minutes", INT, None, "log.retention.ms in minutes, if that is unset."),
    Setting("log.retention.hours", INT, 168, "log.retention.ms in hours, if the minutes are unset too."),
    _make_topic_and_broker_setting("retention.bytes", "log.retention.bytes", LONG, -1, "How many bytes of a partition are kept; -1 for no limit."),
    Setting("log.retention.check.interval.ms", LONG, 300_000, "How often the broker looks for expired segments; in compacted logs the cleaner does that.", FROM_ONE),
    _make_topic_and_broker_setting("delete.retention.ms", "log.cleaner.delete.retention.ms", LONG, 24 * HOUR_MS, "How long a compacted topic keeps its tombstones.", FROM_ZERO),
    _make_topic_and_broker_setting("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "The share of uncompacted bytes above which a log is compacted.", Range(0, 1)),
    _make_topic_and_broker_setting("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", LONG, 0, "The least time for which a record stays uncompacted.", FROM_ZERO),
    _make_topic_and_broker_setting("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, "The longest time for which a record stays uncompacted.", FROM_ONE),
    Setting("log.cleaner.enable", BOOLEAN, True, "Whether logs are compacted; if false, compacted topics are not subject to retention either."),
    Setting("log.cleaner.threads", INT, 1, "How many logs are compacted at a time, each in its own thread; the threads share the interpreter.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner waits when there is no log to compact.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.dedupe.buffer.size", LONG, 128 << 20, "The memory for the keys of the logs being compacted, 24 bytes each, allocated only while needed.", update=CLUSTER_WIDE),
    Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full that memory gets before a log is cleaned in several rounds.", update=CLUSTER_WIDE),
    Setting("log.cleaner.io.buffer.size", INT, 512 << 10, "The memory for reading and writing the logs being compacted.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, "The largest average rate at which compaction reads and writes.", update=CLUSTER_WIDE),
    # Transactions.
    Setting("transaction.max.timeout.ms", INT, 900_000, "The longest transaction.timeout.ms that a producer may request.", FROM_ONE),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, "How long an unused transactional id is remembered.", FROM_ONE),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, "How often the broker looks for transactions that have timed out.", FROM_ONE),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, "How often the broker looks for expired transactional ids.", FROM_ONE),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, "Whether clients that add partitions themselves must have added a partition to the transaction before they produce to it.", update=CLUSTER_WIDE),
    Setting("transaction.two.phase.commit.enable", BOOLEAN, False, "Whether producers may take part in two-phase commits, so that their transactions never time out (KIP-939)."),
    Setting("unstable.feature.versions.enable", BOOLEAN, False, "Whether a broker that emulates Kafka 4.3 offers level 31 of metadata.version, which that release has not released.", internal=True),
    Setting("unstable.api.versions.enable", BOOLEAN, False, "Whether versions of APIs are served that Kafka has not released yet: version 6 of InitProducerId, which two-phase commits need.", internal=True),
    Setting("transaction.state.log.num.partitions", INT, 50, "The number of partitions of __transaction_state when it is created.", FROM_ONE),
    Setting("transaction.state.log.replication.factor", SHORT, 3, "The number of replicas of __transaction_state when it is created; at most the number of nodes.", FROM_ONE),
    Setting("transaction.state.log.min.isr", INT, 2, "min.insync.replicas of __transaction_state when it is created; at most its number of replicas.", FROM_ONE),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, "segment.bytes of __transaction_state when it is created, which then needs 1048576 or more.", FROM_ONE),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, "How many bytes of __transaction_state are read at a time when it is loaded.", FROM_ONE),
    # Groups.
    Setting("offsets.topic.num.partitions", INT, 50, "The number of partitions of __consumer_offsets when it is created.", FROM_ONE),
    Setting("offsets.topic.replication.factor", SHORT, 3, "The number of replicas of __consumer_offsets when it is created; at most the number of nodes.", FROM_ONE),
    Setting("offsets.topic.segment.bytes", INT, 104_857_600, "segment.bytes of __consumer_offsets when it is created, which then needs 1048576 or more.", FROM_ONE),
    Setting("offsets.load.buffer.size", INT, 5_242_880, "How many bytes of __consumer_offsets are read at a time when it is loaded.", FROM_ONE),
    Setting("offsets.topic.compression.codec", INT, 0, "The codec of batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", Range(0, 4)),
    Setting("offset.metadata.max.bytes", INT, 4096, "The longest metadata that a client may store with a committed offset, in characters."),
    Setting("offsets.retention.minutes", INT, 10_080, "How long committed offsets are kept once their group has no members or no longer reads the topic.", FROM_ONE),
    Setting("offsets.retention.check.interval.ms", LONG, 600_000, "How often the broker looks for expired offsets.", FROM_ONE),
    Setting("offsets.commit.timeout.ms", INT, 5000, "How long a commit waits for a flush, if flush.messages of __consumer_offsets requires one.", FROM_ONE),
    Setting("group.min.session.timeout.ms", INT, 6000, "The shortest session timeout that a member of a classic group may request."),
    Setting("group.max.session.timeout.ms", INT, 1_800_000, "The longest session timeout that a member of a classic group may request."),
    Setting("group.initial.rebalance.delay.ms", INT, 0, "How long an empty classic group waits for more members before its first generation; 0, so that tests do not wait.", kafka_default=3000),
    Setting("group.max.size", INT, 2_147_483_647, "The largest number of members of a classic group.", FROM_ONE),
    # Consumer groups of the next generation (KIP-848).
    Setting("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer", "streams"), "The group protocols that are enabled. Share groups need the feature share.version instead.", REBALANCE_PROTOCOLS),
    Setting("group.consumer.assignors", LIST, ("uniform", "range"), "The assignors that members may choose; the first is the default.", NON_EMPTY),
    Setting("group.consumer.migration.policy", STRING, "bidirectional", "Whether groups with members may migrate from the classic protocol (upgrade), back to it (downgrade), both, or neither (disabled).", MIGRATION_POLICIES),
    Setting("group.consumer.max.size", INT, 2_147_483_647, "The largest number of members of a consumer group.", FROM_ONE),
    Setting("group.consumer.session.timeout.ms", INT, 45_000, "The time without heartbeats after which a member is removed from its consumer group.", FROM_ONE),
    Setting("group.consumer.min.session.timeout.ms", INT, 45_000, "The shortest session timeout that can be set for a consumer group.", FROM_ONE),
    Setting("group.consumer.max.session.timeout.ms", INT, 60_000, "The longest session timeout that can be set for a consumer group.", FROM_ONE),
    Setting("group.consumer.heartbeat.interval.ms", INT, 5000, "How often members of consumer groups send heartbeats, and so how soon they learn of changes.", FROM_ONE),
    Setting("group.consumer.min.heartbeat.interval.ms", INT, 5000, "The shortest heartbeat interval that can be set for a consumer group.", FROM_ONE),
    Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "The longest heartbeat interval that can be set for a consumer group.", FROM_ONE),
    Setting("group.consumer.assignment.interval.ms", INT, 0, "The least time between two target assignments of a consumer group; 0, so that tests do not wait.", FROM_ZERO, update=CLUSTER_WIDE, kafka_default=1000),
    Setting("group.consumer.min.assignment.interval.ms", INT, 0, "The shortest assignment interval that can be set for a consumer group.", FROM_ZERO),
    Setting("group.consumer.max.assignment.interval.ms", INT, 15_000, "The longest assignment interval that can be set for a consumer group.", FROM_ZERO),
    # Share groups (KIP-932).
    Setting("group.share.assignment.interval.ms", INT, 0, "The least time between two target assignments of a share group; 0, so that tests do not wait.", FROM_ZERO, update=CLUSTER_WIDE, kafka_default=1000),
    Setting("group.share.delivery.count.limit", INT, 5, "How often a record is delivered to a share group at most; then it is archived.", Range(2, 10)),
    Setting("group.share.heartbeat.interval.ms", INT, 5000, "How often members of share groups send heartbeats, and so how soon they learn of changes.", FROM_ONE),
    Setting("group.share.max.assignment.interval.ms", INT, 15_000, "The longest assignment interval that can be set for a share group.", FROM_ZERO),
    Setting("group.share.max.delivery.count.limit", INT, 10, "The largest delivery count limit that can be set for a share group.", Range(5, 25)),
    Setting("group.share.max.heartbeat.interval.ms", INT, 15_000, "The longest heartbeat interval that can be set for a share group.", FROM_ONE),
    Setting("group.share.max.partition.max.record.locks", INT, 4000, "The largest number of record locks that can be set for a share group.", Range(2000, 10_000)),
    Setting("group.share.max.record.lock.duration.ms", INT, 60_000, "The longest lock duration that can be set for a share group.", Range(30_000, 3_600_000)),
    Setting("group.share.max.session.timeout.ms", INT, 60_000, "The longest session timeout that can be set for a share group.", FROM_ONE),
    Setting("group.share.max.share.sessions", INT, 2000, "The largest number of share sessions of a broker.", FROM_ONE),
    Setting("group.share.max.size", INT, 200, "The largest number of members of a share group.", Range(1, 1000)),
    Setting("group.share.min.assignment.interval.ms", INT, 0, "The shortest assignment interval that can be set for a share group.", FROM_ZERO),
    Setting("group.share.min.delivery.count.limit", INT, 2, "The smallest delivery count limit that can be set for a share group.", Range(2, 5)),
    Setting("group.share.min.heartbeat.interval.ms", INT, 5000, "The shortest heartbeat interval that can be set for a share group.", FROM_ONE),
    Setting("group.share.min.partition.max.record.locks", INT, 100, "The smallest number of record locks that can be set for a share group.", Range(100, 2000)),
    Setting("group.share.min.record.lock.duration.ms", INT, 15_000, "The shortest lock duration that can be set for a share group.", Range(1000, 30_000)),
    Setting("group.share.min.session.timeout.ms", INT, 45_000, "The shortest session timeout that can be set for a share group.", FROM_ONE),
    Setting("group.share.partition.max.record.locks", INT, 2000, "The most records of a partition between the first and the last one in flight, for a share group.", Range(100, 10_000)),
    Setting("group.share.record.lock.duration.ms", INT, 30_000, "How long a member of a share group may keep acquired records before others get them.", Range(1000, 3_600_000)),
    Setting("group.share.session.timeout.ms", INT, 45_000, "The time without heartbeats after which a member is removed from its share group.", FROM_ONE),
    Setting("errors.deadletterqueue.auto.create.topics.enable", BOOLEAN, False, "Whether the topic for dead letters of a share group is created if it does not exist.", update=CLUSTER_WIDE),
    Setting("errors.deadletterqueue.topic.name.prefix", STRING, "dlq.", "What the names of topics for dead letters begin with.", update=CLUSTER_WIDE),
    _make_topic_setting("errors.deadletterqueue.group.enable", BOOLEAN, False, "Whether the topic may be a dead letter queue of share groups."),
    # Streams groups (KIP-1071).
    Setting("group.streams.acceptable.recovery.lag", LONG, 10_000, "How many offsets a member of a streams group may lack of a task's state, and get the task; only of members that report offsets, as those of Kafka 4.4 do.", FROM_ZERO, internal=True),
    Setting("group.streams.assignment.interval.ms", INT, 0, "The least time between two target assignments of a streams group; 0, so that tests do not wait.", FROM_ZERO, update=CLUSTER_WIDE, kafka_default=1000),
    Setting("group.streams.assignors", LIST, ("sticky",), "The assignors of streams groups. There is one.", NON_EMPTY),
    Setting("group.streams.heartbeat.interval.ms", INT, 5000, "How often members of streams groups send heartbeats, and so how soon they learn of changes.", FROM_ONE),
    Setting("group.streams.initial.rebalance.delay.ms", INT, 0, "How long an empty streams group waits for more members before its first assignment; 0, so that tests do not wait.", FROM_ZERO, kafka_default=3000),
    Setting("group.streams.max.assignment.interval.ms", INT, 15_000, "The longest assignment interval that can be set for a streams group.", FROM_ZERO),
    Setting("group.streams.max.heartbeat.interval.ms", INT, 15_000, "The longest heartbeat interval that can be set for a streams group.", FROM_ONE),
    Setting("group.streams.max.session.timeout.ms", INT, 60_000, "The longest session timeout that can be set for a streams group.", FROM_ONE),
    Setting("group.streams.max.size", INT, 2_147_483_647, "The largest number of members of a streams group.", FROM_ONE),
    Setting("group.streams.max.standby.replicas", INT, 2, "The largest number of standbys of each task that can be set for a streams group.", FROM_ZERO),
    Setting("group.streams.max.warmup.replicas", INT, 20, "The largest number of warm-ups that can be set for a streams group.", FROM_ZERO, internal=True),
    Setting("group.streams.min.assignment.interval.ms", INT, 0, "The shortest assignment interval that can be set for a streams group.", FROM_ZERO),
    Setting("group.streams.min.heartbeat.interval.ms", INT, 5000, "The shortest heartbeat interval that can be set for a streams group.", FROM_ONE),
    Setting("group.streams.min.session.timeout.ms", INT, 45_000, "The shortest session timeout that can be set for a streams group.", FROM_ONE),
    Setting("group.streams.min.task.offset.interval.ms", INT, 15_000, "The shortest interval of reported offsets that can be set for a streams group.", FROM_ONE, internal=True),
    Setting("group.streams.num.standby.replicas", INT, 0, "How many standbys each task with state has in a streams group.", FROM_ZERO),
    Setting("group.streams.num.warmup.replicas", INT, 2, "How many tasks of a streams group are restored elsewhere at a time, before they move there; 0 to move tasks at once.", FROM_ZERO, internal=True),
    Setting("group.streams.rack.aware.assignment.tags", LIST, (), "The tags that members of streams groups must have, or their heartbeats are answered with a warning. The assignor does not look at them, as in Kafka 4.4."),
    Setting("group.streams.session.timeout.ms", INT, 45_000, "The time without heartbeats after which a member is removed from its streams group.", FROM_ONE),
    Setting("group.streams.task.offset.interval.ms", INT, 60_000, "How often members of streams groups report how far they have restored their tasks.", FROM_ONE, internal=True),
    Setting("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, "After how much time without a snapshot a share partition gets one, so that older records can be deleted.", FROM_ONE, internal=True),
    Setting("share.coordinator.load.buffer.size", INT, 5_242_880, "How many bytes of __share_group_state are read at a time when it is loaded.", FROM_ONE),
    Setting("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, "After how many updates of a share partition its whole state is written to __share_group_state.", Range(0, 500)),
    Setting("share.coordinator.state.topic.compression.codec", INT, 0, "The codec of batches in __share_group_state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."),
    Setting("share.coordinator.state.topic.min.isr", SHORT, 2, "min.insync.replicas of __share_group_state when it is created.", FROM_ONE),
    Setting("share.coordinator.state.topic.num.partitions", INT, 50, "The number of partitions of __share_group_state when it is created.", FROM_ONE),
    Setting("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, "How often records of __share_group_state that later ones replace are deleted.", FROM_ONE, internal=True),
    Setting("share.coordinator.state.topic.replication.factor", SHORT, 3, "The number of replicas of __share_group_state when it is created; at most the number of nodes.", FROM_ONE),
    Setting("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, "segment.bytes of __share_group_state when it is created, which then needs 1048576 or more.", FROM_ONE),
    # Metrics of clients (KIP-714). Kafka asks for them if a plugin among metric.reporters takes them.
    Setting("client.telemetry.enable", BOOLEAN, False, "Whether clients are asked for their metrics, according to the subscriptions that are configured as client metrics.", update=CLUSTER_WIDE, in_kafka=False),
    Setting("telemetry.max.bytes", INT, 1_048_576, "The largest size of the metrics that a client pushes at a time, compressed and uncompressed.", FROM_ONE),
    # Replication and tiered storage: replicas share one log in this process, and there is no second tier.
    Setting("auto.leader.rebalance.enable", BOOLEAN, True, "Whether leadership returns to the preferred replicas automatically."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, "How often the broker looks for partitions that could be led by their preferred replica and are not.", FROM_ONE),
    _make_topic_and_broker_setting("unclean.leader.election.enable", "unclean.leader.election.enable", BOOLEAN, False, "Whether an out-of-sync replica may become leader if no replica is in sync."),
    _make_topic_and_broker_setting("local.retention.ms", "log.local.retention.ms", LONG, -2, "How long a tiered topic keeps records on the local disk.", Range(-2), inert=NOT_TIERED),
    _make_topic_and_broker_setting("local.retention.bytes", "log.local.retention.bytes", LONG, -2, "How many bytes a tiered topic keeps on the local disk.", Range(-2), inert=NOT_TIERED),
    _make_topic_and_broker_setting("remote.copy.lag.ms", "log.remote.copy.lag.ms", LONG, 0, "How old a segment of a tiered topic is before it is copied to the second tier; -1 for the time for which it stays on the local disk.", Range(-1), inert=NOT_TIERED),
    _make_topic_and_broker_setting("remote.copy.lag.bytes", "log.remote.copy.lag.bytes", LONG, -1, "How many bytes follow a segment of a tiered topic before it is copied to the second tier; -1 for as many as stay on the local disk.", Range(-1), inert=NOT_TIERED),
    _make_topic_setting("remote.storage.enable", BOOLEAN, False, "Whether a topic is tiered; true is rejected, as by a Kafka broker without tiered storage."),
    _make_topic_setting("remote.log.copy.disable", BOOLEAN, False, "Whether a tiered topic stops copying to the second tier.", inert=NOT_TIERED),
    _make_topic_setting("remote.log.delete.on.disable", BOOLEAN, False, "Whether disabling tiering deletes the topic's data in the second tier.", inert=NOT_TIERED),
    _make_topic_setting("leader.replication.throttled.replicas", LIST, (), "The replicas whose leaders are throttled.", ReplicaList(), inert=ONE_LOG),
    _make_topic_setting("follower.replication.throttled.replicas", LIST, (), "The replicas whose followers are throttled.", ReplicaList(), inert=ONE_LOG),
    _make_topic_setting("internal.segment.bytes", INT, None, "segment.bytes without its lower bound, for tests.", internal=True),
)
# fmt: on

BROKER_SETTINGS: Final = {row.name: row for row in SETTINGS if row.scope is not SettingScope.TOPIC}
TOPIC_SETTINGS: Final = {row.topic: row for row in SETTINGS if row.topic is not None}
