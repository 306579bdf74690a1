"""The broker settings of Apache Kafka 4.4 that have no effect here, but can be set and listed.

A `server.properties` from production may contain them, a running broker accepts those that Kafka accepts, and
DescribeConfigs lists them; a warning or a note names each, and says why it has no effect. Names, types, defaults and bounds are Kafka's. Settings with
an effect, and all topic configs, are in `settings_table`. A start that sets none of these does not import this file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from minibroker.broker.configs.settings_table import (
    BOOLEAN,
    BROKER_SETTINGS,
    CLASS,
    CLUSTER_WIDE,
    DOUBLE,
    FROM_ONE,
    FROM_ZERO,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    NON_EMPTY,
    NOT_TIERED,
    ONE_LOG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
    ConfigType,
    Setting,
    SettingValue,
    UpdateMode,
)
from minibroker.broker.configs.valid_values import AnyCaseOf, OneOf, Range


def _make_setting_without_effect(
    name: str, type: ConfigType, default: SettingValue, valid: Any = None, **options: Any
) -> Setting:
    return Setting(name, type, default, "", valid, **options)


# fmt: off
_ROWS: Final[dict[str, tuple[Setting, ...]]] = {  # by the reason why they have no effect
    NOT_TIERED: (
        _make_setting_without_effect("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.fetch.max.wait.ms", INT, 500, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.list.offsets.request.timeout.ms", LONG, 30_000, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.index.file.cache.ttl.ms", LONG, 900_000, Range(-1), internal=True),
        _make_setting_without_effect("remote.log.manager.copier.thread.pool.size", INT, 10, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.manager.copy.quota.window.num", INT, 11, FROM_ONE),
        _make_setting_without_effect("remote.log.manager.copy.quota.window.size.seconds", INT, 1, FROM_ONE),
        _make_setting_without_effect("remote.log.manager.expiration.thread.pool.size", INT, 10, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.manager.fetch.quota.window.num", INT, 11, FROM_ONE),
        _make_setting_without_effect("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, FROM_ONE),
        _make_setting_without_effect("remote.log.manager.follower.thread.pool.size", INT, 2, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.manager.task.interval.ms", LONG, 30_000, FROM_ONE),
        _make_setting_without_effect("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000, FROM_ONE, internal=True),
        _make_setting_without_effect("remote.log.manager.task.retry.backoff.ms", LONG, 500, FROM_ONE, internal=True),
        _make_setting_without_effect("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, Range(0, 0.5), internal=True),
        _make_setting_without_effect("remote.log.manager.thread.pool.size", INT, 2, FROM_ONE),
        _make_setting_without_effect("remote.log.metadata.custom.metadata.max.bytes", INT, 128, FROM_ZERO),
        _make_setting_without_effect("remote.log.metadata.manager.class.name", STRING, "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", NON_EMPTY),
        _make_setting_without_effect("remote.log.metadata.manager.class.path", STRING, None),
        _make_setting_without_effect("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", NON_EMPTY),
        _make_setting_without_effect("remote.log.metadata.manager.listener.name", STRING, None, NON_EMPTY),
        _make_setting_without_effect("remote.log.reader.max.pending.tasks", INT, 100, FROM_ONE),
        _make_setting_without_effect("remote.log.reader.threads", INT, 10, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("remote.log.storage.manager.class.name", STRING, None, NON_EMPTY),
        _make_setting_without_effect("remote.log.storage.manager.class.path", STRING, None),
        _make_setting_without_effect("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", NON_EMPTY),
        _make_setting_without_effect("remote.log.storage.system.enable", BOOLEAN, False),
    ),
    "no Java class is loaded": (
        _make_setting_without_effect("alter.config.policy.class.name", CLASS, None),
        _make_setting_without_effect("client.quota.callback.class", CLASS, None),
        _make_setting_without_effect("config.providers", LIST, (), update=CLUSTER_WIDE),
        _make_setting_without_effect("create.topic.policy.class.name", CLASS, None),
        _make_setting_without_effect("group.share.dlq.manager.class.name", STRING, "org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager", internal=True),
        _make_setting_without_effect("group.share.persister.class.name", STRING, "org.apache.kafka.server.share.persister.DefaultStatePersister", internal=True),
        _make_setting_without_effect("group.streams.topology.description.plugin.class", CLASS, None),
        _make_setting_without_effect("kafka.metrics.polling.interval.secs", INT, 10, FROM_ONE),
        _make_setting_without_effect("kafka.metrics.reporters", LIST, ()),
        _make_setting_without_effect("metric.reporters", LIST, ("org.apache.kafka.common.metrics.JmxReporter",), update=CLUSTER_WIDE),
        _make_setting_without_effect("metrics.num.samples", INT, 2, FROM_ONE),
        _make_setting_without_effect("metrics.recording.level", STRING, "INFO"),
        _make_setting_without_effect("metrics.sample.window.ms", LONG, 30_000, FROM_ONE),
        _make_setting_without_effect("principal.builder.class", CLASS, "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder", update=PER_BROKER),
        _make_setting_without_effect("sasl.client.callback.handler.class", CLASS, None),
        _make_setting_without_effect("sasl.login.callback.handler.class", CLASS, None),
        _make_setting_without_effect("sasl.login.class", CLASS, None),
        _make_setting_without_effect("sasl.oauthbearer.jwt.retriever.class", CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
        _make_setting_without_effect("sasl.oauthbearer.jwt.validator.class", CLASS, "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator"),
        _make_setting_without_effect("security.providers", STRING, None),
        _make_setting_without_effect("ssl.engine.factory.class", CLASS, None, update=PER_BROKER),
        _make_setting_without_effect("ssl.keymanager.algorithm", STRING, "SunX509", update=PER_BROKER),
        _make_setting_without_effect("ssl.provider", STRING, None, update=PER_BROKER),
        _make_setting_without_effect("ssl.secure.random.implementation", STRING, None, update=PER_BROKER),
        _make_setting_without_effect("ssl.trustmanager.algorithm", STRING, "PKIX", update=PER_BROKER),
    ),
    "Kerberos is missing": (
        _make_setting_without_effect("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", update=PER_BROKER),
        _make_setting_without_effect("sasl.kerberos.min.time.before.relogin", LONG, 60_000, update=PER_BROKER),
        _make_setting_without_effect("sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",), update=PER_BROKER),
        _make_setting_without_effect("sasl.kerberos.service.name", STRING, None, update=PER_BROKER),
        _make_setting_without_effect("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, update=PER_BROKER),
        _make_setting_without_effect("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, update=PER_BROKER),
    ),
    ONE_LOG: (
        _make_setting_without_effect("follower.replication.throttled.rate", LONG, None, FROM_ZERO, update=CLUSTER_WIDE, internal=True),
        _make_setting_without_effect("leader.replication.throttled.rate", LONG, None, FROM_ZERO, update=CLUSTER_WIDE, internal=True),
        _make_setting_without_effect("num.replica.fetchers", INT, 1, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("replica.fetch.backoff.ms", INT, 1000, FROM_ZERO),
        _make_setting_without_effect("replica.fetch.max.bytes", INT, 1_048_576, FROM_ZERO),
        _make_setting_without_effect("replica.fetch.min.bytes", INT, 1),
        _make_setting_without_effect("replica.fetch.response.max.bytes", INT, 10_485_760, FROM_ZERO),
        _make_setting_without_effect("replica.fetch.wait.max.ms", INT, 500),
        _make_setting_without_effect("replica.lag.time.max.ms", LONG, 30_000),
        _make_setting_without_effect("replica.socket.receive.buffer.bytes", INT, 65_536),
        _make_setting_without_effect("replica.socket.timeout.ms", INT, 30_000),
        _make_setting_without_effect("replication.quota.window.num", INT, 11, FROM_ONE),
        _make_setting_without_effect("replication.quota.window.size.seconds", INT, 1, FROM_ONE),
    ),
    "the controller is a part of this process": (
        _make_setting_without_effect("broker.heartbeat.interval.ms", INT, 2000),
        _make_setting_without_effect("broker.session.timeout.ms", INT, 9000),
        _make_setting_without_effect("controlled.shutdown.enable", BOOLEAN, True),
        _make_setting_without_effect("controller.performance.always.log.threshold.ms", LONG, 2000, FROM_ZERO, internal=True),
        _make_setting_without_effect("controller.performance.sample.period.ms", LONG, 60_000, Range(100), internal=True),
        _make_setting_without_effect("controller.quorum.append.linger.ms", INT, 25, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.auto.join.enable", BOOLEAN, False),
        _make_setting_without_effect("controller.quorum.bootstrap.servers", LIST, ()),
        _make_setting_without_effect("controller.quorum.election.backoff.max.ms", INT, 1000, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.election.timeout.ms", INT, 1000, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.fetch.max.bytes", INT, 1_048_576, FROM_ONE),
        _make_setting_without_effect("controller.quorum.fetch.snapshot.max.bytes", INT, 1_048_576, FROM_ONE),
        _make_setting_without_effect("controller.quorum.fetch.timeout.ms", INT, 2000, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.request.timeout.ms", INT, 2000, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.retry.backoff.ms", INT, 20, FROM_ZERO),
        _make_setting_without_effect("controller.quorum.voters", LIST, ()),
        _make_setting_without_effect("controller.socket.timeout.ms", INT, 30_000),
        _make_setting_without_effect("early.start.listeners", LIST, None),
        _make_setting_without_effect("initial.broker.registration.timeout.ms", INT, 60_000),
        _make_setting_without_effect("metadata.max.idle.interval.ms", INT, 500, FROM_ZERO),
        _make_setting_without_effect("process.roles", LIST, None, OneOf(("broker", "controller"), some=True), kafka_default="required"),
        _make_setting_without_effect("sasl.mechanism.controller.protocol", STRING, "GSSAPI"),
        _make_setting_without_effect("server.max.startup.time.ms", LONG, LONG_MAX, FROM_ZERO, internal=True),
    ),
    "the brokers of a cluster are one process, which logs in nowhere": (
        _make_setting_without_effect("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, FROM_ZERO),
        _make_setting_without_effect("add.partitions.to.txn.retry.backoff.ms", INT, 20, FROM_ONE),
        _make_setting_without_effect("request.timeout.ms", INT, 30_000),
        _make_setting_without_effect("sasl.login.connect.timeout.ms", INT, None),
        _make_setting_without_effect("sasl.login.read.timeout.ms", INT, None),
        _make_setting_without_effect("sasl.login.refresh.buffer.seconds", SHORT, 300, update=PER_BROKER),
        _make_setting_without_effect("sasl.login.refresh.min.period.seconds", SHORT, 60, update=PER_BROKER),
        _make_setting_without_effect("sasl.login.refresh.window.factor", DOUBLE, 0.8, update=PER_BROKER),
        _make_setting_without_effect("sasl.login.refresh.window.jitter", DOUBLE, 0.05, update=PER_BROKER),
        _make_setting_without_effect("sasl.login.retry.backoff.max.ms", LONG, 10_000),
        _make_setting_without_effect("sasl.login.retry.backoff.ms", LONG, 100),
        _make_setting_without_effect("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", update=PER_BROKER),
        _make_setting_without_effect("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", AnyCaseOf(("ES256", "RS256"))),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.aud", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, Range(0, 86_400)),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.iss", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, Range(0, 3600)),
        _make_setting_without_effect("sasl.oauthbearer.assertion.claim.sub", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.file", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.private.key.file", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None),
        _make_setting_without_effect("sasl.oauthbearer.assertion.template.file", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.client.credentials.client.id", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None),
        _make_setting_without_effect("sasl.oauthbearer.scope", STRING, None),
        _make_setting_without_effect("sasl.oauthbearer.token.endpoint.url", STRING, None),
        _make_setting_without_effect("socket.connection.setup.timeout.max.ms", LONG, 30_000),
        _make_setting_without_effect("socket.connection.setup.timeout.ms", LONG, 10_000),
        _make_setting_without_effect("ssl.endpoint.identification.algorithm", STRING, "https", update=PER_BROKER),
    ),
    "one event loop serves all": (
        _make_setting_without_effect("background.threads", INT, 10, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("group.consumer.assignor.offload.enable", BOOLEAN, True, update=CLUSTER_WIDE, internal=True),
        _make_setting_without_effect("group.coordinator.background.threads", INT, 2, FROM_ONE),
        _make_setting_without_effect("group.coordinator.threads", INT, 4, FROM_ONE),
        _make_setting_without_effect("group.share.assignor.offload.enable", BOOLEAN, True, update=CLUSTER_WIDE, internal=True),
        _make_setting_without_effect("group.streams.assignor.offload.enable", BOOLEAN, True, update=CLUSTER_WIDE, internal=True),
        _make_setting_without_effect("num.io.threads", INT, 8, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("num.network.threads", INT, 3, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("num.recovery.threads.per.data.dir", INT, 2, FROM_ONE, update=CLUSTER_WIDE),
        _make_setting_without_effect("num.replica.alter.log.dirs.threads", INT, None),
        _make_setting_without_effect("queued.max.requests", INT, 500, FROM_ONE),
        _make_setting_without_effect("share.coordinator.threads", INT, 1, FROM_ONE),
    ),
    "requests that wait leave nothing behind": (
        _make_setting_without_effect("delete.records.purgatory.purge.interval.requests", INT, 1),
        _make_setting_without_effect("fetch.purgatory.purge.interval.requests", INT, 1000),
        _make_setting_without_effect("producer.purgatory.purge.interval.requests", INT, 1000),
        _make_setting_without_effect("share.fetch.purgatory.purge.interval.requests", INT, 1000),
    ),
    "the writes of one turn of the event loop are one write": (
        _make_setting_without_effect("group.coordinator.append.linger.ms", INT, -1, Range(-1)),
        _make_setting_without_effect("group.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), update=CLUSTER_WIDE),
        _make_setting_without_effect("share.coordinator.append.linger.ms", INT, -1, Range(-1)),
        _make_setting_without_effect("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, Range(524_288), update=CLUSTER_WIDE),
        _make_setting_without_effect("share.coordinator.write.timeout.ms", INT, 5000, FROM_ONE),
    ),
    "moves of logs have no rate": (
        _make_setting_without_effect("alter.log.dirs.replication.quota.window.num", INT, 11, FROM_ONE),
        _make_setting_without_effect("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, FROM_ONE),
        _make_setting_without_effect("replica.alter.log.dirs.io.max.bytes.per.second", LONG, None, FROM_ZERO, update=CLUSTER_WIDE, internal=True),
    ),
    "the metadata log keeps its own size in hand": (
        _make_setting_without_effect("internal.metadata.delete.delay.millis", LONG, 60_000, internal=True),
        _make_setting_without_effect("internal.metadata.log.segment.bytes", INT, None, internal=True),
        _make_setting_without_effect("internal.metadata.max.batch.size.in.bytes", INT, 8_388_608, internal=True),
        _make_setting_without_effect("metadata.log.max.record.bytes.between.snapshots", LONG, 20_971_520, FROM_ONE),
        _make_setting_without_effect("metadata.log.max.snapshot.interval.ms", LONG, 3_600_000, FROM_ZERO),
        _make_setting_without_effect("metadata.log.segment.bytes", INT, 1_073_741_824, Range(8_388_608)),
        _make_setting_without_effect("metadata.log.segment.ms", LONG, 604_800_000),
        _make_setting_without_effect("metadata.max.retention.bytes", LONG, 104_857_600),
        _make_setting_without_effect("metadata.max.retention.ms", LONG, 604_800_000),
    ),
    "it is done at once": (
        _make_setting_without_effect("group.consumer.regex.refresh.interval.ms", INT, 600_000, Range(10_000), internal=True),
        _make_setting_without_effect("group.share.initialize.retry.interval.ms", INT, 30_000, FROM_ONE, internal=True),
        _make_setting_without_effect("log.dir.failure.timeout.ms", LONG, 30_000, FROM_ONE),
        _make_setting_without_effect("unclean.leader.election.interval.ms", LONG, 300_000, FROM_ONE, internal=True),
    ),
    "the only assignor is simple": (
        _make_setting_without_effect("group.share.assignors", LIST, ("simple",), NON_EMPTY),
    ),
    "the metadata log is in the first of log.dirs": (
        _make_setting_without_effect("metadata.log.dir", STRING, None),
    ),
    "only listeners have login modules": (
        _make_setting_without_effect("sasl.jaas.config", PASSWORD, None, update=PER_BROKER),
    ),
}
# fmt: on

WITHOUT_EFFECT: Final = {row.name: row._replace(inert=why) for why, rows in _ROWS.items() for row in rows}
KNOWN_WITHOUT_EFFECT: Final = frozenset(WITHOUT_EFFECT)

# `listener.name.<listener>.<setting>` sets the value for one listener; for SASL also for one mechanism.
LISTENER_PREFIX: Final = "listener.name."
_LISTENER = re.compile(r"listener\.name\.([^.]*)\.(.*)")
_OF_MECHANISMS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)
# These take effect there, and so do those of TLS. A login module belongs to one mechanism only.
_ACTING: Final = frozenset(
    [
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "sasl.enabled.mechanisms",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
    ]
)
_JAAS: Final = "sasl.jaas.config"
_UNKNOWN: Final = "it is not known here"
_NOT_OF_ONE: Final = "it is the same for all listeners"
_OF_ALL_BROKERS = ("max.connection.creation.rate", "max.connections", "num.network.threads")
_OF_LISTENERS_ONLY = frozenset(
    [
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ]
)


@lru_cache(1000)
def find_broker_setting_declaration(name: str) -> Setting:
    """Return the declaration of a broker setting, also of one listener's, without effect, or with an unknown name.

    A name that Kafka does not know may be meant for a plugin; its type is UNKNOWN.
    """
    row = BROKER_SETTINGS.get(name) or WITHOUT_EFFECT.get(name)
    if row is not None:
        return row
    base = _find_name_without_listener_prefix(name)
    if base is None:
        # Kafka lets each mechanism have its own, but knows no type for such a name.
        acts = _LISTENER.sub(r"\2", name).removeprefix("oauthbearer.") in _ACTING
        return Setting(name, ConfigType.UNKNOWN, None, "", inert="" if acts else _UNKNOWN, in_kafka=False)
    of_all = find_broker_setting_declaration(base)
    acts = base in _ACTING or base.startswith("ssl.") and of_all.has_effect
    acts = acts or (base == _JAAS and not name.endswith(f"{name.split('.')[2]}.{_JAAS}"))
    inert = "" if acts else of_all.inert or _NOT_OF_ONE
    return of_all._replace(
        name=name, default=None, documentation="", fallbacks=((base, 1),), update=UpdateMode.READ_ONLY, inert=inert
    )


def _find_name_without_listener_prefix(name: str) -> str | None:
    """Return the name of the known setting that `name` sets for one listener, or None."""
    match = _LISTENER.fullmatch(name)
    rest = match[2] if match else ""
    rest = next((base for base in _OF_MECHANISMS if rest.endswith(base)), rest)
    return rest if rest in BROKER_SETTINGS or rest in WITHOUT_EFFECT else None


def find_listener_of_setting(name: str) -> str | None:
    """Return the listener, in small letters, for which `name` sets something, or None."""
    match = _LISTENER.fullmatch(name)
    return match[1] if match else None


def is_fixed_while_listener_open(name: str) -> bool:
    """Return whether this sets something for one listener that cannot change while that listener is open."""
    match = _LISTENER.fullmatch(name)
    return match is not None and match[2] not in _OF_LISTENERS_ONLY and match[2] not in _OF_ALL_BROKERS


def is_read_only_setting(name: str) -> bool:
    """Return whether this is a known setting that cannot change at run time."""
    row = BROKER_SETTINGS.get(name) or WITHOUT_EFFECT.get(name)
    return row is not None and not row.is_dynamic


def is_listener_only_setting(name: str) -> bool:
    """Return whether the setting can change only per listener, as `listener.name.<listener>.<name>`."""
    return name in _OF_LISTENERS_ONLY


def is_per_broker_setting(name: str) -> bool:
    """Return whether the setting can change only per broker, not for all brokers."""
    match = _LISTENER.fullmatch(name)
    return match[2] not in _OF_ALL_BROKERS if match else find_broker_setting_declaration(name).update is PER_BROKER
