"""Records that are large when decompressed: none is too large, unless `max.decompressed.message.bytes` says so.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zstandard

from conformance.wire.batches import GZIP, ZSTD, Record, batch, encode_record, gzipped
from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.requests import MAX_TIMESTAMP, broker_id, list_offset, produce, repeated, stored
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest

NOW_MS = int(time.time() * 1000)
LIMIT = "max.decompressed.message.bytes"
MOST = (1 << 31) - 9
TOPIC, BROKER, SET, DELETE = 2, 4, 0, 1
COMPRESSORS: dict[int, Callable[[bytes], bytes]] = {
    GZIP: lambda data: gzip.compress(data, 1),
    ZSTD: lambda data: zstandard.compress(data),
}


@pytest.fixture(scope="module")
def large() -> bytes:
    """A record of 120 MB, and a small one."""
    return encode_record(0, Record(b"x" * 120_000_000)) + encode_record(1, Record(b"y", timestamp_delta=5))


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_record_of_120_mb_is_accepted_and_found_by_its_timestamp(
    connection: Connection, new_topic: NewTopic, large: bytes, codec: int
) -> None:
    name = new_topic()
    records = batch(
        [b"", Record(b"", timestamp_delta=5)],
        timestamp=NOW_MS,
        attributes=codec,
        compressed=COMPRESSORS[codec](large),
    )
    assert produce(connection, name, records).error_code == 0
    assert list_offset(connection, name, NOW_MS).offset == 0
    assert list_offset(connection, name, NOW_MS + 1).offset == 1
    assert list_offset(connection, name, MAX_TIMESTAMP).offset == 1
    assert [each.record_count for each in stored(connection, name)] == [2]


def altered(connection: Connection, kind: int, name: str, value: str | None) -> int:
    """The code of a change of the limit; None removes it."""
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    line = Resource.AlterableConfig(name=LIMIT, config_operation=DELETE if value is None else SET, value=value)
    wanted = Resource(resource_type=kind, resource_name=name, configs=[line])
    return int(connection.ask(IncrementalAlterConfigsRequest(resources=[wanted]), 1).responses[0].error_code)


REFUSED = ErrorCode.INVALID_RECORD


def test_a_topic_may_limit_its_decompressed_records(connection: Connection, new_topic: NewTopic) -> None:
    name = new_topic(**{LIMIT.replace(".", "_"): "512"})
    assert produce(connection, name, gzipped([b"v" * 4096], timestamp=NOW_MS)).error_code == REFUSED
    assert produce(connection, name, gzipped([b"v" * 64, b"v" * 4096], timestamp=NOW_MS)).error_code == REFUSED
    assert produce(connection, name, gzipped([b"v" * 400] * 20, timestamp=NOW_MS)).error_code == 0
    assert produce(connection, name, batch([b"v" * 4096], timestamp=NOW_MS)).error_code == 0
    body = 512 - len(encode_record(0, Record(b"v" * 400))) + 2 + 400  # the length, of 2 bytes, does not count
    assert produce(connection, name, gzipped([b"v" * (body + 1)], timestamp=NOW_MS)).error_code == REFUSED
    assert produce(connection, name, gzipped([b"v" * body], timestamp=NOW_MS)).error_code == 0


def test_a_lowered_decompression_limit_prevents_finding_larger_records_by_timestamp(
    connection: Connection, new_topic: NewTopic
) -> None:
    name = new_topic()
    assert produce(connection, name, gzipped([b"v" * 4096], timestamp=NOW_MS)).error_code == 0
    assert produce(connection, name, batch([b"v" * 4096], timestamp=NOW_MS + 9)).error_code == 0
    assert altered(connection, TOPIC, name, "512") == 0
    found = repeated(lambda: list_offset(connection, name, NOW_MS), lambda seen: seen.error_code != 0)
    assert (found.error_code, found.offset) == (REFUSED, -1)
    assert list_offset(connection, name, NOW_MS + 1).offset == 1
    assert [each.record_count for each in stored(connection, name)] == [1, 1]
    assert altered(connection, TOPIC, name, None) == 0
    assert repeated(lambda: list_offset(connection, name, NOW_MS), lambda seen: seen.error_code == 0).offset == 0


@contextmanager
def limited(connection: Connection, node: str, value: str) -> Iterator[None]:
    assert altered(connection, BROKER, node, value) == 0
    try:
        yield
    finally:
        assert altered(connection, BROKER, node, None) == 0


@pytest.mark.parametrize("of_all", [True, False])
def test_topics_inherit_the_brokers_decompression_limit(
    connection: Connection, new_topic: NewTopic, of_all: bool
) -> None:
    name, other = new_topic(), new_topic(**{LIMIT.replace(".", "_"): "5000"})
    records = gzipped([b"v" * 4096], timestamp=NOW_MS)
    with limited(connection, "" if of_all else str(broker_id(connection)), "512"):
        refused = repeated(lambda: produce(connection, name, records), lambda seen: seen.error_code != 0)
        assert refused.error_code == REFUSED
        assert produce(connection, other, records).error_code == 0
    assert repeated(lambda: produce(connection, name, records), lambda seen: seen.error_code == 0).error_code == 0


@pytest.mark.parametrize("value", ["0", "-1", str(MOST + 1), "x"])
def test_invalid_decompression_limits_are_rejected(connection: Connection, name: str, value: str) -> None:
    assert altered(connection, TOPIC, name, value) == ErrorCode.INVALID_CONFIG
    assert altered(connection, TOPIC, name, str(MOST)) == 0
