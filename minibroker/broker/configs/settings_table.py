"""Every setting the broker knows, a line each: Kafka's name, type, default, allowed values, scope and meaning.

Only facts, and the rules for single values: `configuration` knows where values come from, `settings` which one is in
force. Names and defaults are those of Apache Kafka 4.3; `kafka_default` marks where ours differ.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from minibroker.broker.configs.format_versions import format_of_version

# The typed value of a setting: bool, int, float, str, a tuple of str, or None where a setting has no default.
Value = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """The type of a setting, with its number in DescribeConfigs (KIP-569). Unknown names have the type UNKNOWN."""

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


class Scope(Enum):
    """Where a setting can be given: for the broker, for a topic, or for both under two names."""

    BROKER = "broker"
    TOPIC = "topic"
    BOTH = "both"


class UpdateMode(Enum):
    """Whether, and for whom, a broker's setting can change while it runs (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class Range(NamedTuple):
    """Numbers from `minimum` to `maximum`, both included; `or_equal_to` is one more that is allowed."""

    minimum: float | None = None
    maximum: float | None = None
    or_equal_to: int | None = None

    def objection(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if self.or_equal_to is not None:
            allowed = value == self.or_equal_to or (self.minimum or 0) <= value <= (self.maximum or 0)
            text = f"Value must be between {self.minimum} and {self.maximum} or equal to {self.or_equal_to}"
            return None if allowed else text
        if self.minimum is not None and not value >= self.minimum:
            return f"Value must be at least {self.minimum}"
        if self.maximum is not None and not value <= self.maximum:
            return f"Value must be no more than {self.maximum}"
        return None


class OneOf(NamedTuple):
    """One of some words; each element of a list is one, and with `some` the list is not empty."""

    choices: tuple[str, ...]
    some: bool = False

    def objection(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        words = value if isinstance(value, tuple) else (value,)
        if self.some and not words:
            return f"must not be empty. Valid values include: [{', '.join(self.choices)}]"
        if all(word in self.choices for word in words):
            return None
        return f"String must be one of: {', '.join(self.choices)}"


class AnyCaseOf(NamedTuple):
    """One of some words, in small or capital letters."""

    choices: tuple[str, ...]

    def objection(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if value.upper() in self.choices:
            return None
        return f"String must be one of (case insensitive): {', '.join(self.choices)}"


class ReplicaList(NamedTuple):
    """`*`, or `partition:broker` pairs."""

    def objection(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if value == ("*",) or all(_is_replica(pair) for pair in value):
            return None
        return "must be the literal '*' or a list of replicas in the format [partitionId]:[brokerId],..."


class FormatVersion(NamedTuple):
    """A version of Kafka, as in `message.format.version` until Kafka 4; it stands for the format of that version."""

    def objection(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        return None if format_of_version(value) is not None else f"Version {value} is not a valid version"


class NonEmpty(NamedTuple):
    """A list of at least one element."""

    def objection(self, value: Any) -> str | None:
        """Return an objection to the value, or None."""
        return None if value else "must not be empty"


def _is_replica(pair: str) -> bool:
    partition, separator, broker = pair.partition(":")
    return bool(separator) and partition.isdecimal() and broker.isdecimal()


class Setting(NamedTuple):
    """One line of the table.

    `name` is the broker's name, or the topic's if the scope is TOPIC; `topic` is the topic's name, or None if the scope
    is BROKER. `fallbacks` are broker settings consulted, in order, while this one is unset: (name, factor that turns
    theirs into this one's unit). `acts` is False for a setting that is checked, kept and described, but has no effect
    yet: setting it is answered with a warning. `kafka_default` is Kafka's default where ours differs, "required" if Kafka
    has none and insists on a value. `in_kafka` is False for what Apache Kafka 4.3 does not know, as it was removed or is
    only planned.
    """

    name: str
    type: ConfigType
    default: Value
    documentation: str
    valid: Range | OneOf | AnyCaseOf | ReplicaList | FormatVersion | NonEmpty | None = None
    scope: Scope = Scope.BROKER
    topic: str | None = None
    fallbacks: tuple[tuple[str, int], ...] = ()
    update: UpdateMode = UpdateMode.READ_ONLY
    acts: bool = True
    internal: bool = False
    kafka_default: Value = None
    in_kafka: bool = True

    @property
    def sensitive(self) -> bool:
        """Whether the value is never shown; what is not known may be a password, too."""
        return self.type in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    @property
    def dynamic(self) -> bool:
        """Whether the broker's setting can change while it runs."""
        return self.update is not UpdateMode.READ_ONLY


BOOLEAN, STRING, INT, LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
SHORT, DOUBLE, LIST, PASSWORD = ConfigType.SHORT, ConfigType.DOUBLE, ConfigType.LIST, ConfigType.PASSWORD
CLUSTER_WIDE, PER_BROKER = UpdateMode.CLUSTER_WIDE, UpdateMode.PER_BROKER

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
PROTOCOL_MAP: Final = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


def _both(
    topic: str, broker: str, type: ConfigType, default: Value, text: str, valid: Any = None, **more: Any
) -> Setting:
    """Return a setting of topics whose default is a setting of the broker that can change at run time."""
    return Setting(broker, type, default, text, valid, Scope.BOTH, topic, update=CLUSTER_WIDE, **more)


def _topic(name: str, type: ConfigType, default: Value, text: str, valid: Any = None, **more: Any) -> Setting:
    """Return a setting that only topics have."""
    return Setting(name, type, default, text, valid, Scope.TOPIC, name, **more)


# fmt: off
SETTINGS: Final[tuple[Setting, ...]] = (
    # Who this broker is and where it listens.
    Setting("node.id", INT, 1, "The id of this broker; with several nodes, of the first of them.", FROM_ZERO, kafka_default="required"),
    Setting("broker.id", INT, -1, "An older name of node.id; if both are set they must agree."),
    Setting("broker.rack", STRING, None, "The rack that Metadata and DescribeCluster report for this broker; with several nodes one each, with commas between them."),
    Setting("replica.selector.class", STRING, None, "Which replica a consumer should read from: the leader, or with RackAwareReplicaSelector one in its own rack (KIP-392)."),
    Setting("listeners", LIST, ("PLAINTEXT://127.0.0.1:9092",), "The addresses to listen on, as NAME://host:port; port 0 takes a free one.", NON_EMPTY, kafka_default=("PLAINTEXT://:9092",)),
    Setting("advertised.listeners", LIST, None, "The addresses that clients connect to; those of listeners, if unset.", NON_EMPTY),
    Setting("listener.security.protocol.map", STRING, PROTOCOL_MAP, "The security protocol of each listener name: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
    Setting("controller.listener.names", LIST, None, "Listeners of a KRaft controller, which are not opened: the controller is part of the process.", NON_EMPTY, kafka_default="required"),
    # TLS. Each of these can be given for one listener, as listener.name.<listener>.<setting>, the listener in small letters.
    Setting("ssl.keystore.type", STRING, "JKS", "The format of the key store: PEM or PKCS12. JKS stands for PKCS12, too, which is what Java writes since version 9; a true JKS is refused.", update=PER_BROKER),
    Setting("ssl.keystore.location", STRING, None, "The file with the broker's private key and certificates.", update=PER_BROKER),
    Setting("ssl.keystore.password", PASSWORD, None, "The password of the key store file; PEM has none.", update=PER_BROKER),
    Setting("ssl.keystore.key", PASSWORD, None, "The broker's private key itself, in PEM, instead of a file.", update=PER_BROKER),
    Setting("ssl.keystore.certificate.chain", PASSWORD, None, "The certificates that go with ssl.keystore.key, in PEM, the broker's own first.", update=PER_BROKER),
    Setting("ssl.key.password", PASSWORD, None, "The password of an encrypted private key in PEM.", update=PER_BROKER),
    Setting("ssl.truststore.type", STRING, "JKS", "The format of the trust store: PEM or PKCS12, or JKS, which stands for PKCS12, too.", update=PER_BROKER),
    Setting("ssl.truststore.location", STRING, None, "The file with the certificates that clients' certificates are checked against; if unset, those of the machine.", update=PER_BROKER),
    Setting("ssl.truststore.password", PASSWORD, None, "The password of the trust store file; PEM has none.", update=PER_BROKER),
    Setting("ssl.truststore.certificates", PASSWORD, None, "The trusted certificates themselves, in PEM, instead of a file.", update=PER_BROKER),
    Setting("ssl.client.auth", STRING, "none", "Whether clients present a certificate: required, requested (a client may have none), or none. On SASL_SSL only a listener's own value counts.", OneOf(("required", "requested", "none")), update=PER_BROKER),
    Setting("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "The versions of TLS that are spoken; older ones than these are refused.", update=PER_BROKER),
    Setting("ssl.protocol", STRING, "TLSv1.3", "The highest version of TLS, where ssl.enabled.protocols is empty.", update=PER_BROKER),
    Setting("ssl.cipher.suites", LIST, (), "The cipher suites that are offered, by their names in Java; if empty, those of OpenSSL's default.", update=PER_BROKER),
    Setting("ssl.principal.mapping.rules", STRING, "DEFAULT", "How the name in a client's certificate becomes that of its principal: DEFAULT, or RULE:pattern/replacement/[LU], the first that matches."),
    Setting("ssl.allow.dn.changes", BOOLEAN, False, "Whether a key store that is replaced while the broker runs may be for another name."),
    Setting("ssl.allow.san.changes", BOOLEAN, False, "Whether it may lack alternative names of the one before."),
    Setting("sasl.server.max.receive.size", INT, 524_288, "The largest request of a client that has yet to authenticate."),
    # Connections.
    Setting("connections.max.idle.ms", LONG, 600_000, "A connection on which nothing happens for this long is closed."),
    Setting("connections.max.stall.ms", LONG, 30_000, "A connection that sends nothing more of a request it has begun, or takes nothing of answers above 64 KiB, for this long is closed; so is one that has not authenticated.", FROM_ONE, in_kafka=False),
    Setting("socket.listen.backlog.size", INT, 50, "How many connections may wait to be accepted on a listener.", FROM_ONE),
    Setting("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF of the sockets; -1 leaves the operating system's."),
    Setting("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF of the sockets; -1 leaves the operating system's."),
    Setting("socket.request.max.bytes", INT, 104_857_600, "A request larger than this closes its connection.", FROM_ONE),
    Setting("queued.max.request.bytes", LONG, -1, "How many bytes of unfinished requests above 64 KiB are held before further ones are left unread; -1 for 256 MiB."),
    # Topics.
    Setting("auto.create.topics.enable", BOOLEAN, True, "Whether a topic that a client asks for and that does not exist is created."),
    Setting("delete.topic.enable", BOOLEAN, True, "Whether topics can be deleted."),
    Setting("num.partitions", INT, 1, "Partitions of a topic created without a count.", FROM_ONE),
    Setting("default.replication.factor", INT, 1, "Replicas of a topic created without a count."),
    Setting("max.request.partition.size.limit", INT, 2000, "How many partitions one DescribeTopicPartitions answer lists at most.", FROM_ONE),
    # Fetch.
    Setting("fetch.max.bytes", INT, 57_671_680, "How many bytes of records one Fetch answer holds at most, whatever the client asks for.", Range(1024)),
    Setting("max.incremental.fetch.session.cache.slots", INT, 1000, "How many fetch sessions are kept, as long as they have no more than about a million partitions together.", FROM_ZERO),
    # The log.
    Setting("log.dir", LIST, ("minibroker-data",), "The directory of the data, if log.dirs is unset.", NON_EMPTY, kafka_default=("/tmp/kafka-logs",)),
    Setting("log.dirs", LIST, None, "The directories of the data; a new log goes to the one with the fewest. Several nodes share them, as they share their logs.", NON_EMPTY),
    Setting("accept.lost.metadata", BOOLEAN, False, "Whether to start although the metadata log is damaged or has lost its end: logs that it no longer knows keep their files under other names and are not served, see docs/durability.md.", in_kafka=False),
    _both("segment.bytes", "log.segment.bytes", INT, 1 << 30, "A segment file that would grow beyond this is closed and a new one begun.", Range(1 << 20)),
    _both("segment.ms", "log.roll.ms", LONG, None, "A segment whose first record is older than this is closed at the next append.", FROM_ONE, fallbacks=(("log.roll.hours", HOUR_MS),)),
    Setting("log.roll.hours", INT, 168, "log.roll.ms in hours, for when that is unset.", FROM_ONE),
    _both("segment.jitter.ms", "log.roll.jitter.ms", LONG, None, "Up to how much earlier, at random, a segment is closed.", FROM_ZERO, fallbacks=(("log.roll.jitter.hours", HOUR_MS),)),
    Setting("log.roll.jitter.hours", INT, 0, "log.roll.jitter.ms in hours, for when that is unset.", FROM_ZERO),
    _both("segment.index.bytes", "log.index.size.max.bytes", INT, 10_485_760, "The size of an index at which its segment is closed.", Range(4)),
    _both("index.interval.bytes", "log.index.interval.bytes", INT, 4096, "How many bytes of records lie between two index entries at least.", FROM_ZERO),
    _both("file.delete.delay.ms", "log.segment.delete.delay.ms", LONG, 60_000, "How long a deleted segment's files stay on the disk.", FROM_ZERO),
    _both("preallocate", "log.preallocate", BOOLEAN, False, "Whether a segment's file has its full size from the beginning, zeros at its end, until the segment is closed."),
    _both("flush.messages", "log.flush.interval.messages", LONG, LONG_MAX, "After how many records the log is forced to the disk; the producer of the last one is answered then.", FROM_ONE),
    _both("flush.ms", "log.flush.interval.ms", LONG, None, "After how long records that were appended are forced to the disk.", FROM_ZERO, fallbacks=(("log.flush.scheduler.interval.ms", 1),)),
    Setting("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for a sync that is due; if unset, as often as the shortest flush.ms needs."),
    Setting("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often the offsets are noted up to which logs are synced; a start after a crash need not read what is below.", FROM_ZERO),
    Setting("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, "How often the start offsets of logs are noted from which records were deleted.", FROM_ZERO),
    Setting("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "How often the high watermarks are noted."),
    Setting("log.initial.task.delay.ms", LONG, 30_000, "How long after the start retention, flushing and checkpoints begin.", FROM_ZERO, internal=True),
    Setting("producer.id.expiration.ms", INT, 86_400_000, "How long a partition remembers a producer that is silent, to recognise repetitions.", FROM_ONE, update=CLUSTER_WIDE),
    Setting("producer.id.expiration.check.interval.ms", INT, 600_000, "How often silent producers are looked for.", FROM_ONE, internal=True),
    # Records.
    _both("max.message.bytes", "message.max.bytes", INT, 1_048_588, "The largest record batch that is accepted, as compressed by the producer.", FROM_ZERO),
    _both("compression.type", "compression.type", STRING, "producer", "The codec batches are stored in; producer keeps each as it came.", CODECS),
    _both("compression.gzip.level", "compression.gzip.level", INT, -1, "The level for gzip when the broker compresses; -1 for the codec's own.", Range(1, 9, or_equal_to=-1)),
    _both("compression.lz4.level", "compression.lz4.level", INT, 9, "The level for lz4 when the broker compresses.", Range(1, 17)),
    _both("compression.zstd.level", "compression.zstd.level", INT, 3, "The level for zstd when the broker compresses.", Range(-131_072, 22)),
    _both("message.format.version", "log.message.format.version", STRING, "3.0-IV1", "The version of Kafka whose message format records are stored in: 0 before 0.10.0, 1 before 0.11.0, 2 since.", FormatVersion(), in_kafka=False),
    _both("message.timestamp.type", "log.message.timestamp.type", STRING, "CreateTime", "Whether a record has the producer's time or that of its append.", TIMESTAMP_TYPES),
    _both("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", LONG, LONG_MAX, "How far a record's timestamp may lie in the past.", FROM_ZERO),
    _both("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", LONG, HOUR_MS, "How far a record's timestamp may lie in the future.", FROM_ZERO),
    _both("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms", LONG, LONG_MAX, "An older name for both of these, for where they have their defaults.", FROM_ZERO, in_kafka=False),
    _topic("record.attributes.elide", BOOLEAN, False, "Whether batches are stored without the attributes byte of each record, which says nothing. Once set it can be false, but not be removed.", in_kafka=False),
    _both("min.insync.replicas", "min.insync.replicas", INT, 1, "How many replicas must be in sync for a produce with acks=all.", FROM_ONE),
    # Retention and compaction. The policy also decides whether records need keys.
    _both("cleanup.policy", "log.cleanup.policy", LIST, ("delete",), "What is done with old records: delete, compact, or both; with compact, records need keys.", POLICIES),
    _both("retention.ms", "log.retention.ms", LONG, None, "How long records are kept; -1 for ever.", Range(-1), fallbacks=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS))),
    Setting("log.retention.minutes", INT, None, "log.retention.ms in minutes, for when that is unset."),
    Setting("log.retention.hours", INT, 168, "log.retention.ms in hours, for when minutes are unset too."),
    _both("retention.bytes", "log.retention.bytes", LONG, -1, "How many bytes of a partition are kept; -1 for all."),
    Setting("log.retention.check.interval.ms", LONG, 300_000, "How often expired segments are looked for; in a compacted log the cleaner does that.", FROM_ONE),
    _both("delete.retention.ms", "log.cleaner.delete.retention.ms", LONG, 24 * HOUR_MS, "How long a compacted topic keeps its tombstones.", FROM_ZERO),
    _both("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", DOUBLE, 0.5, "The share of uncompacted bytes from which a log is compacted.", Range(0, 1)),
    _both("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", LONG, 0, "How long a record stays uncompacted at least.", FROM_ZERO),
    _both("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", LONG, LONG_MAX, "How long a record stays uncompacted at most.", FROM_ONE),
    Setting("log.cleaner.enable", BOOLEAN, True, "Whether logs are compacted; if not, nothing is deleted from logs with that policy either."),
    Setting("log.cleaner.threads", INT, 1, "How many logs are compacted at a time, each by a thread of its own; they share the interpreter.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner waits when it has found no log to compact.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.dedupe.buffer.size", LONG, 128 << 20, "The memory for the keys of the logs being compacted, 24 bytes each, taken while it is needed.", update=CLUSTER_WIDE),
    Setting("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "The share of that memory that is filled with keys.", update=CLUSTER_WIDE),
    Setting("log.cleaner.io.buffer.size", INT, 512 << 10, "The memory for reading and writing the logs being compacted.", FROM_ZERO, update=CLUSTER_WIDE),
    Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, DOUBLE_MAX, "How much the compaction reads and writes on average.", update=CLUSTER_WIDE),
    # Transactions.
    Setting("transaction.max.timeout.ms", INT, 900_000, "The longest transaction.timeout.ms that a producer may ask for.", FROM_ONE),
    Setting("transactional.id.expiration.ms", INT, 604_800_000, "How long an unused transactional id is remembered.", FROM_ONE),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, "How often transactions that last too long are looked for.", FROM_ONE),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, "How often unused transactional ids are looked for.", FROM_ONE),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, "Whether a partition must be part of the transaction before its records are taken, from clients that add it themselves.", update=CLUSTER_WIDE),
    Setting("transaction.state.log.num.partitions", INT, 50, "Partitions of __transaction_state, when it is created.", FROM_ONE),
    Setting("transaction.state.log.replication.factor", SHORT, 3, "Replicas of __transaction_state, when it is created; at most as many as there are nodes.", FROM_ONE),
    Setting("transaction.state.log.min.isr", INT, 2, "min.insync.replicas of __transaction_state, when it is created; at most its replicas.", FROM_ONE),
    Setting("transaction.state.log.segment.bytes", INT, 104_857_600, "segment.bytes of __transaction_state, when it is created, which needs 1048576 or more.", FROM_ONE),
    Setting("transaction.state.log.load.buffer.size", INT, 5_242_880, "How many bytes of __transaction_state are read at a time at the start.", FROM_ONE),
    # Groups.
    Setting("offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets, when it is created.", FROM_ONE),
    Setting("offsets.topic.replication.factor", SHORT, 3, "Replicas of __consumer_offsets, when it is created; at most as many as there are nodes.", FROM_ONE),
    Setting("offsets.topic.segment.bytes", INT, 104_857_600, "segment.bytes of __consumer_offsets, when it is created, which needs 1048576 or more.", FROM_ONE),
    Setting("offsets.load.buffer.size", INT, 5_242_880, "How many bytes of __consumer_offsets are read at a time at the start.", FROM_ONE),
    Setting("offsets.topic.compression.codec", INT, 0, "The codec of what is written to __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.", Range(0, 4)),
    Setting("offset.metadata.max.bytes", INT, 4096, "The longest note that a client may store with a committed offset, in characters."),
    Setting("offsets.retention.minutes", INT, 10_080, "How long committed offsets are kept once their group has no members or no longer reads the topic.", FROM_ONE),
    Setting("offsets.retention.check.interval.ms", LONG, 600_000, "How often expired offsets are looked for.", FROM_ONE),
    Setting("offsets.commit.timeout.ms", INT, 5000, "How long a commit waits for the disk, if flush.messages of __consumer_offsets demands it.", FROM_ONE),
    Setting("group.min.session.timeout.ms", INT, 6000, "The shortest session timeout that a member of a classic group may ask for."),
    Setting("group.max.session.timeout.ms", INT, 1_800_000, "The longest session timeout that a member of a classic group may ask for."),
    Setting("group.initial.rebalance.delay.ms", INT, 0, "How long a classic group that was empty waits for further members before its first generation; tests should not wait.", kafka_default=3000),
    Setting("group.max.size", INT, 2_147_483_647, "How many members a classic group has at most.", FROM_ONE),
    # Consumer groups of the next generation (KIP-848).
    Setting("group.coordinator.rebalance.protocols", LIST, ("classic", "consumer"), "The protocols of groups that are served; share and streams are not, whatever stands here.", REBALANCE_PROTOCOLS, kafka_default=("classic", "consumer", "streams")),
    Setting("group.consumer.assignors", LIST, ("uniform", "range"), "The assignors that members may ask for; the first is that of members who ask for none.", NON_EMPTY),
    Setting("group.consumer.migration.policy", STRING, "bidirectional", "Whether groups with members may go over from the classic protocol (upgrade), back to it (downgrade), both, or neither (disabled).", MIGRATION_POLICIES),
    Setting("group.consumer.max.size", INT, 2_147_483_647, "How many members a consumer group has at most.", FROM_ONE),
    Setting("group.consumer.session.timeout.ms", INT, 45_000, "After what time a silent member is removed from its consumer group.", FROM_ONE),
    Setting("group.consumer.min.session.timeout.ms", INT, 45_000, "The shortest session timeout a consumer group can be given.", FROM_ONE),
    Setting("group.consumer.max.session.timeout.ms", INT, 60_000, "The longest session timeout a consumer group can be given.", FROM_ONE),
    Setting("group.consumer.heartbeat.interval.ms", INT, 5000, "How often the members of consumer groups send heartbeats, which is also how soon they learn of changes.", FROM_ONE),
    Setting("group.consumer.min.heartbeat.interval.ms", INT, 5000, "The shortest heartbeat interval a consumer group can be given.", FROM_ONE),
    Setting("group.consumer.max.heartbeat.interval.ms", INT, 15_000, "The longest heartbeat interval a consumer group can be given.", FROM_ONE),
    Setting("group.consumer.assignment.interval.ms", INT, 0, "How long a consumer group's target assignment stays at least before the next is made; tests should not wait for it.", FROM_ZERO, update=CLUSTER_WIDE, kafka_default=1000),
    Setting("group.consumer.min.assignment.interval.ms", INT, 0, "The shortest assignment interval a consumer group can be given.", FROM_ZERO),
    Setting("group.consumer.max.assignment.interval.ms", INT, 15_000, "The longest assignment interval a consumer group can be given.", FROM_ZERO),
    # Replication and tiered storage: replicas share one log in this process, and there is no second tier.
    Setting("auto.leader.rebalance.enable", BOOLEAN, True, "Whether leadership goes back to the preferred replicas by itself."),
    Setting("leader.imbalance.check.interval.seconds", LONG, 300, "How often partitions are looked for whose preferred replica could lead and does not.", FROM_ONE),
    _both("unclean.leader.election.enable", "unclean.leader.election.enable", BOOLEAN, False, "Whether a replica that is not in sync may lead if there is no other."),
    _both("local.retention.ms", "log.local.retention.ms", LONG, -2, "How long a tiered topic keeps records on the local disk.", Range(-2), acts=False),
    _both("local.retention.bytes", "log.local.retention.bytes", LONG, -2, "How many bytes a tiered topic keeps on the local disk.", Range(-2), acts=False),
    _topic("remote.storage.enable", BOOLEAN, False, "Whether a topic is tiered; true is refused, as by a broker without tiered storage."),
    _topic("remote.log.copy.disable", BOOLEAN, False, "Whether a tiered topic stops copying to the second tier.", acts=False),
    _topic("remote.log.delete.on.disable", BOOLEAN, False, "Whether ending the tiering of a topic deletes its second tier.", acts=False),
    _topic("leader.replication.throttled.replicas", LIST, (), "Replicas whose leaders send at a limited rate.", ReplicaList(), acts=False),
    _topic("follower.replication.throttled.replicas", LIST, (), "Replicas whose followers fetch at a limited rate.", ReplicaList(), acts=False),
    _topic("internal.segment.bytes", INT, None, "segment.bytes without its lower bound, for tests.", internal=True),
)
# fmt: on

BROKER_SETTINGS: Final = {row.name: row for row in SETTINGS if row.scope is not Scope.TOPIC}
TOPIC_SETTINGS: Final = {row.topic: row for row in SETTINGS if row.topic is not None}
