"""The options of a writer as typed settings: Spark's own, and those of the Kafka producer after `kafka.`.

The connection checks the remaining ones after `kafka.`; `sink_columns` checks columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from minibroker.client.connection_settings import Settings
from minibroker.pipeline.encode.batch_settings import BatchSettings
from minibroker.pipeline.foreign_options import drop_ignored, list_meaningless
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.option_values import INT32_MAX, parse_number, parse_one_of, parse_switch
from minibroker.protocol.records.compression import Compression

Choice = TypeVar("Choice", bound=str)
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
    identifies a batch write that may be repeated. With `linger_ms` None, a batch waits until it is full, or there are
    no more rows.
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
    linger_ms: int | None = None
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


def parse_settings(options: Mapping[str, str]) -> SinkSettings:
    """Return the settings of a writer's options. Names may be in any case. Raises `OptionError` in one line."""
    ignored = list_meaningless(options, writing=True)
    lowered = {name.lower(): value for name, value in drop_ignored(options, ignored).items()}
    kafka = {name.removeprefix("kafka."): value for name, value in lowered.items() if name.startswith("kafka.")}
    own = _Options({name: value for name, value in lowered.items() if not name.startswith("kafka.")})
    producer = _Options(kafka, "kafka.")
    for name, instead in _DECIDED.items():
        if name in kafka:
            raise OptionError(f"kafka.{name} cannot be set: {instead}")
    servers = producer.text("bootstrap.servers")
    if not servers:
        _refuse_unknown({"path"} & set(own.rest()))
        raise OptionError("kafka.bootstrap.servers is missing: the brokers to write to, as host:port,host:port")
    settings = SinkSettings(
        bootstrap_servers=servers,
        topic=own.text("topic"),
        delivery=own.choice("delivery", DELIVERIES, "at-least-once"),
        transactional_id_prefix=own.text("transactionalIdPrefix") or "minibroker",
        write_id=own.text("writeId"),
        keep_timestamps=own.flag("keepTimestamps", True),
        **_take_producer_settings(producer),  # type: ignore[arg-type]
        client=Settings({**producer.rest(), **_get_timing(kafka)}, producer.known),
        ignored=tuple(ignored),
    )
    _refuse_unknown(set(own.rest()) - _OF_SPARK)
    return _check_consistency(settings, kafka, prefixed="transactionalidprefix" in lowered)


def _refuse_unknown(unknown: set[str]) -> None:
    if "path" in unknown:
        raise OptionError("path cannot be written to: a writer needs a running broker in kafka.bootstrap.servers")
    if unknown:
        names = ", ".join(sorted(unknown))
        raise OptionError(f"a writer has no option {names}; there are {', '.join(_NAMES)}, and kafka.*")


def _take_producer_settings(given: _Options) -> dict[str, object]:
    """Take the settings of Kafka's producer out of the options."""
    given.number("max.in.flight.requests.per.connection", 1, 1)  # a maximum: there is one in flight to a partition
    acks = given.choice("acks", ("all", "-1", "1", "0"), "all")
    if acks == "0":
        raise OptionError("kafka.acks=0 is not possible: a task could not know whether its rows were written")
    return {
        "batches": _batch_settings(given),
        "acks": 1 if acks == "1" else -1,
        "idempotent": given.flag("enable.idempotence", acks != "1"),
        "ignore_keys": given.flag("partitioner.ignore.keys", False),
        "max_request_bytes": given.number("max.request.size", 1 << 20, 1),
        "buffer_bytes": given.number("buffer.memory", 8 << 20, 1),
        "linger_ms": given.optional_number("linger.ms"),
        "max_block_ms": given.number("max.block.ms", 60_000),
        "request_timeout_ms": given.number("request.timeout.ms", 30_000, 1),
        "delivery_timeout_ms": given.number("delivery.timeout.ms", 120_000),
        "retries": given.number("retries", INT32_MAX),
        "retry_backoff_ms": given.number("retry.backoff.ms", 100),
        "retry_backoff_max_ms": given.number("retry.backoff.max.ms", 1_000),
        "transaction_timeout_ms": given.number("transaction.timeout.ms", 900_000, 1),
    }


def _get_timing(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that are also the connection's: it looks for leaders and coordinators for `max.block.ms`."""
    names = ("request.timeout.ms", "retry.backoff.ms", "retry.backoff.max.ms", "max.block.ms")
    given = {name: kafka[name] for name in names if name in kafka}
    if "max.block.ms" in given:
        patience = given.pop("max.block.ms")
        given["default.api.timeout.ms"] = "1" if patience == "0" else patience  # the connection does not accept 0
    return given


def _batch_settings(given: _Options) -> BatchSettings:
    names = tuple(codec.name.lower() for codec in Compression)
    codec = Compression[given.choice("compression.type", names, "none").upper()]
    levels = {of: given.optional_number(name, -INT32_MAX - 1) for of, name in _LEVELS.items()}
    return BatchSettings(codec=codec, level=levels.get(codec), batch_bytes=given.number("batch.size", 256 << 10, 1))


def _check_consistency(settings: SinkSettings, kafka: Mapping[str, str], *, prefixed: bool) -> SinkSettings:
    """Return the settings. Raises `OptionError` if they contradict each other."""
    if settings.idempotent and settings.acks != -1:
        raise OptionError("kafka.enable.idempotence=true needs kafka.acks=all")
    if settings.exactly_once and not settings.idempotent:
        raise OptionError("delivery=exactly-once needs kafka.acks=all and kafka.enable.idempotence=true")
    if settings.delivery_timeout_ms < settings.request_timeout_ms + (settings.linger_ms or 0):
        raise OptionError("kafka.delivery.timeout.ms must be at least kafka.linger.ms + kafka.request.timeout.ms")
    if settings.write_id is not None and not settings.exactly_once:
        raise OptionError("writeId needs delivery=exactly-once")
    if not settings.exactly_once and prefixed:
        raise OptionError("transactionalIdPrefix needs delivery=exactly-once")
    if not settings.exactly_once and "transaction.timeout.ms" in kafka:
        raise OptionError("kafka.transaction.timeout.ms needs delivery=exactly-once")
    return settings


class _Options:
    """Texts by name in lower case, with typed access. `prefix` is for messages."""

    def __init__(self, given: Mapping[str, str], prefix: str = "") -> None:
        self._given = Settings(given)
        self._prefix = prefix

    @property
    def known(self) -> set[str]:
        """The names that were read, in lower case."""
        return self._given.known

    def rest(self) -> dict[str, str]:
        """Return the options that were not read."""
        return dict(self._given)

    def text(self, name: str) -> str | None:
        value: str | None = self._given.pop(name.lower())
        return value

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        return default if text is None else parse_switch(self._prefix + name, text)

    def choice(self, name: str, choices: tuple[Choice, ...], default: Choice) -> Choice:
        text = self.text(name)
        return default if text is None else parse_one_of(self._prefix + name, text, choices)

    def number(self, name: str, default: int, least: int = 0) -> int:
        value = self.optional_number(name, least)
        return default if value is None else value

    def optional_number(self, name: str, least: int = 0) -> int | None:
        text = self.text(name)
        return None if text is None else parse_number(self._prefix + name, text, least, INT32_MAX)
