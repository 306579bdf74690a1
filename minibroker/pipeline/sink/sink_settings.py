"""The options of a writer as typed settings: Spark's own, and those of the Kafka producer after `kafka.`.

The connection checks the remaining ones after `kafka.`; `task` checks columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from minibroker.client.connection_settings import RemainingSettings
from minibroker.pipeline.encoder import BatchSettings
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.options import (
    INT32_MAX,
    GivenOptions,
    drop_ignored_options,
    list_options_without_meaning,
)
from minibroker.protocol.records.compression import Compression

Delivery = Literal["at-least-once", "exactly-once"]
DELIVERIES: Final[tuple[Delivery, ...]] = ("at-least-once", "exactly-once")

_LEVELS: Final = {
    Compression.GZIP: "compression.gzip.level",
    Compression.LZ4: "compression.lz4.level",
    Compression.ZSTD: "compression.zstd.level",
}
# Settings of Kafka's producer that are fixed here, and what to do instead.
_DECIDED: Final = {
    "key.serializer": "cast the column `key` to string or binary instead",
    "value.serializer": "cast the column `value` to string or binary instead",
    "transactional.id": "use delivery=exactly-once and transactionalIdPrefix",
    "partitioner.class": "give a column `partition` instead",
    "interceptor.classes": "it runs no Java classes",
}
# Spark itself adds these to the options of a query.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_NAMES: Final = ("topic", "delivery", "keepTimestamps", "transactionalIdPrefix", "writeId", "kafka.bootstrap.servers")


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """How rows are written. Times are in ms, sizes in bytes. Names are those of Kafka's producer.

    `client` are the settings of the connection. `topic` is for all rows; None means the column `topic`. `write_id`
    identifies a batch write that may be repeated.
    """

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    topic: str | None = None
    delivery: Delivery = "at-least-once"
    transactional_id_prefix: str = "minibroker"
    write_id: str | None = None
    keep_timestamps: bool = True
    batches: BatchSettings = field(default_factory=lambda: BatchSettings(batch_bytes=256 << 10))
    acks: int = -1
    idempotent: bool = True
    ignore_keys: bool = False
    max_request_bytes: int = 1 << 20
    buffer_bytes: int = 8 << 20
    max_block_ms: int = 60_000
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    retries: int = INT32_MAX
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    transaction_timeout_ms: int = 900_000
    ignored: tuple[str, ...] = ()

    @property
    def exactly_once(self) -> bool:
        """Whether rows are written in transactions, which are committed when all tasks have finished."""
        return self.delivery == "exactly-once"


DEFAULTS: Final = SinkSettings("")
# The numbers among the settings of Kafka's producer, each with the least that it can be.
NUMBERS: Final[Mapping[str, tuple[str, int]]] = {
    "max_request_bytes": ("max.request.size", 1),
    "buffer_bytes": ("buffer.memory", 1),
    "max_block_ms": ("max.block.ms", 0),
    "request_timeout_ms": ("request.timeout.ms", 1),
    "delivery_timeout_ms": ("delivery.timeout.ms", 0),
    "retries": ("retries", 0),
    "retry_backoff_ms": ("retry.backoff.ms", 0),
    "retry_backoff_max_ms": ("retry.backoff.max.ms", 0),
    "transaction_timeout_ms": ("transaction.timeout.ms", 1),
}


def parse_settings(options: Mapping[str, str]) -> SinkSettings:
    """Return the settings of a writer's options. Names may be in any case. Raises `OptionError` in one line."""
    ignored = list_options_without_meaning(options, writing=True)
    lowered = {name.lower(): value for name, value in drop_ignored_options(options, ignored).items()}
    kafka = {name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")}
    own = GivenOptions({name: value for name, value in lowered.items() if not name.startswith("kafka.")})
    producer = GivenOptions(kafka, "kafka.", INT32_MAX)
    for name, instead in _DECIDED.items():
        if name in kafka:
            raise OptionError(f"kafka.{name} cannot be set: {instead}")
    servers = producer.get_text("bootstrap.servers")
    if not servers:
        _refuse_unknown_options({"path"} & set(own.get_remaining_options()))
        raise OptionError("kafka.bootstrap.servers is missing: the brokers to write to, as host:port,host:port")
    settings = SinkSettings(
        bootstrap_servers=servers,
        topic=own.get_text("topic"),
        delivery=own.get_word("delivery", DELIVERIES),
        transactional_id_prefix=own.get_text("transactionalIdPrefix") or "minibroker",
        write_id=own.get_text("writeId"),
        keep_timestamps=own.get_switch("keepTimestamps", True),
        **_get_producer_settings(producer),  # type: ignore[arg-type]
        client=RemainingSettings({**producer.get_remaining_options(), **_get_timeout_settings(kafka)}, producer.known),
        ignored=tuple(ignored),
    )
    _refuse_unknown_options(set(own.get_remaining_options()) - _OF_SPARK)
    return _check_consistency(settings, kafka, prefixed="transactionalidprefix" in lowered)


def _refuse_unknown_options(unknown: set[str]) -> None:
    if "path" in unknown:
        raise OptionError("path cannot be written to: a writer needs a running broker in kafka.bootstrap.servers")
    if unknown:
        names = ", ".join(sorted(unknown))
        raise OptionError(f"a writer has no option {names}; there are {', '.join(_NAMES)}, and kafka.*")


def _get_producer_settings(given_options: GivenOptions) -> dict[str, object]:
    """Return the settings of Kafka's producer."""
    given_options.get_number(
        "max.in.flight.requests.per.connection", 1, 1
    )  # a maximum: there is one in flight to a partition
    acks = given_options.get_word("acks", ("all", "-1", "1", "0"))
    if acks == "0":
        raise OptionError("kafka.acks=0 is not possible: a task could not know whether its rows were written")
    return {
        "batches": _make_batch_settings(given_options),
        "acks": 1 if acks == "1" else -1,
        "idempotent": given_options.get_switch("enable.idempotence", acks != "1"),
        "ignore_keys": given_options.get_switch("partitioner.ignore.keys", False),
        **{
            field: given_options.get_number(name, getattr(DEFAULTS, field), least)
            for field, (name, least) in NUMBERS.items()
        },
    }


def _get_timeout_settings(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the producer's timeouts as those of its connection, which finds leaders within `max.block.ms`."""
    names = ("request.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms", "max.block.ms")
    given = {name: kafka[name] for name in names if name in kafka}
    if "max.block.ms" in given:
        patience = given.pop("max.block.ms")
        given["default.api.timeout.ms"] = "1" if patience == "0" else patience  # the connection does not accept 0
    return given


def _make_batch_settings(given_options: GivenOptions) -> BatchSettings:
    names = tuple(codec.name.lower() for codec in Compression)
    codec = Compression[given_options.get_word("compression.type", names).upper()]
    levels = {of: given_options.get_number(name, None, -INT32_MAX - 1) for of, name in _LEVELS.items()}
    size_bytes = given_options.get_number("batch.size", DEFAULTS.batches.batch_bytes, 1)
    return BatchSettings(codec=codec, level=levels.get(codec), batch_bytes=size_bytes)


def _check_consistency(settings: SinkSettings, kafka: Mapping[str, str], *, prefixed: bool) -> SinkSettings:
    """Return the settings. Raises `OptionError` if they contradict each other."""
    if settings.idempotent and settings.acks != -1:
        raise OptionError("kafka.enable.idempotence=true needs kafka.acks=all")
    if settings.exactly_once and not settings.idempotent:
        raise OptionError("delivery=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true")
    if settings.delivery_timeout_ms < settings.request_timeout_ms:
        raise OptionError("kafka.delivery.timeout.ms must be at least kafka.request.timeout.ms")
    if settings.write_id is not None and not settings.exactly_once:
        raise OptionError("writeId needs delivery=exactly-once")
    if not settings.exactly_once and prefixed:
        raise OptionError("transactionalIdPrefix needs delivery=exactly-once")
    if not settings.exactly_once and "transaction.timeout.ms" in kafka:
        raise OptionError("kafka.transaction.timeout.ms needs delivery=exactly-once")
    return settings
