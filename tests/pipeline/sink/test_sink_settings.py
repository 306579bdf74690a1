"""Options become settings; one that means nothing, or that does not go with another, is refused by name."""

from __future__ import annotations

import pytest

from minibroker.pipeline.encoder import BatchSettings
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.sink.sink_settings import SinkSettings, parse_settings
from minibroker.protocol.records.compression import Compression
from tests.cases import for_each

SERVERS = {"kafka.bootstrap.servers": "one:1,two:2"}


def test_a_write_is_idempotent_with_acks_all_by_default() -> None:
    assert parse_settings(SERVERS) == SinkSettings("one:1,two:2")
    assert (parse_settings(SERVERS).idempotent, parse_settings(SERVERS).acks) == (True, -1)


def test_option_names_are_those_of_spark_and_kafka_in_any_case() -> None:
    settings = parse_settings(
        {
            "Kafka.Bootstrap.Servers": "one:1",
            "TOPIC": "orders",
            "delivery": "Exactly-Once",
            "transactionalIdPrefix": "shop",
            "writeId": "march",
            "keepTimestamps": "false",
            "kafka.compression.type": "zstd",
            "kafka.compression.zstd.level": "-7",
            "kafka.batch.size": "1000",
            "kafka.retries": "3",
            "kafka.retry.backoff.ms": "7",
            "kafka.retry.backoff.max.ms": "70",
            "kafka.max.request.size": "5000",
            "kafka.buffer.memory": "6000",
            "kafka.max.in.flight.requests.per.connection": "1",
            "kafka.transaction.timeout.ms": "1000",
            "kafka.partitioner.ignore.keys": "true",
        }
    )
    assert settings == SinkSettings(
        "one:1",
        topic="orders",
        delivery="exactly-once",
        transactional_id_prefix="shop",
        write_id="march",
        keep_timestamps=False,
        batches=BatchSettings(codec=Compression.ZSTD, level=-7, batch_bytes=1000),
        retries=3,
        retry_backoff_ms=7,
        retry_backoff_max_ms=70,
        max_request_bytes=5000,
        buffer_bytes=6000,
        client={"retry.backoff.ms": "7", "retry.backoff.max.ms": "70"},
        transaction_timeout_ms=1000,
        ignore_keys=True,
    )


def test_connection_settings_are_passed_on_with_shared_timeouts() -> None:
    options = {"kafka.security.protocol": "SSL", "kafka.request.timeout.ms": "1000", "kafka.retry.backoff.ms": "7"}
    settings = parse_settings(SERVERS | options)
    assert settings.client == {"security.protocol": "SSL", "request.timeout.ms": "1000", "retry.backoff.ms": "7"}
    assert (settings.request_timeout_ms, settings.retry_backoff_ms) == (1000, 7)


def test_acks_1_is_not_idempotent() -> None:
    settings = parse_settings(SERVERS | {"kafka.acks": "1"})
    assert (settings.acks, settings.idempotent) == (1, False)


@for_each(
    ("options", "why"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"delivery": "at-most-once"}, "delivery: 'at-most-once' is none of at-least-once, exactly-once"),
        ({"keepTimestamps": "no"}, "keepTimestamps: 'no' is none of true, false"),
        ({"kafka.acks": "0"}, "kafka.acks=0 is not possible"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "kafka.enable.idempotence=true needs kafka.acks=all"),
        ({"kafka.acks": "1", "delivery": "exactly-once"}, "delivery=exactly-once needs kafka.acks=all"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer cannot be set"),
        ({"kafka.transactional.id": "x"}, "use delivery=exactly-once and transactionalIdPrefix"),
        ({"kafka.batch.size": "much"}, "kafka.batch.size: 'much' is not a whole number from 1 to 2147483647"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size: '0' is not a whole number from 1 to 2147483647"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type: 'rar' is none of none, gzip, snappy, lz4, zstd"),
        ({"kafka.delivery.timeout.ms": "1000"}, "kafka.delivery.timeout.ms must be at least"),
        ({"writeId": "march"}, "writeId needs delivery=exactly-once"),
        ({"kafka.transaction.timeout.ms": "1"}, "kafka.transaction.timeout.ms needs delivery=exactly-once"),
        ({"transactionalIdPrefix": "x"}, "transactionalIdPrefix needs delivery=exactly-once"),
        ({"kafka.max.in.flight.requests.per.connection": "0"}, "per.connection: '0' is not a whole number from 1 to"),
        ({"kafka.partitioner.class": "x"}, "kafka.partitioner.class cannot be set: give a column"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer cannot be set"),
        ({"topc": "orders"}, "a writer has no option topc; there are topic, delivery, .*writeId"),
        ({"path": "minibroker-data"}, "path cannot be written to: a writer needs a running broker"),
        ({"path": "minibroker-data", "kafka.bootstrap.servers": ""}, "path cannot be written to"),
    ],
)
def test_invalid_options_are_rejected_by_name(options: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        parse_settings(SERVERS | options)


def test_options_that_spark_adds_to_a_query_are_ignored() -> None:
    assert parse_settings(SERVERS | {"checkpointLocation": "/c", "queryName": "q"}) == parse_settings(SERVERS)
