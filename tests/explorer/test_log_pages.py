"""A few KB that stand for many MB are shown as far as there is room, and beside the loop."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from minibroker.explorer import log_pages
from minibroker.explorer.log_pages import BATCH_BYTES
from minibroker.explorer.trying import ComposedRequest, encode_composed_request
from minibroker.protocol.errors import CorruptBatch
from minibroker.protocol.explaining.messages import explain_records
from minibroker.protocol.explaining.parts import MOST_DECOMPRESSED_BYTES
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Record
from minibroker.storage.inspection import inspected_records
from minibroker.testing import Broker
from tests.explorer.asking import ask

MIB = 1 << 20
STOPPED = f"offset {{}}: of the batch only the first {BATCH_BYTES // MIB} MiB are shown"


def bomb(*records: Record, codec: Compression = Compression.ZSTD) -> bytes:
    return bytes(build_batch(records, compression=codec))


def append(broker: Broker, batch: bytes) -> None:
    partition = {"index": 0, "records": f"hex:{batch.hex()}"}
    fields = {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": "orders", "partition_data": [partition]}]}
    frame = encode_composed_request(ComposedRequest(api="Produce", version=9, fields=fields), 0)
    assert "NONE" in json.dumps(ask(broker, "try/send", "POST", {"hex": frame.hex()}))


@pytest.fixture
def large(explored: Broker, monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Return a broker whose explorer notes which threads decompress, and how much."""
    explored.create_topic("orders")
    chunks = log_pages.iterate_payload_chunks
    loop = explored.call_on_loop(threading.current_thread)

    def noted(*where: Any) -> Any:
        assert threading.current_thread() is not loop
        read = 0
        for chunk in chunks(*where):
            read += len(chunk)
            yield chunk
        assert read <= BATCH_BYTES

    monkeypatch.setattr(log_pages, "iterate_payload_chunks", noted)
    return explored


def test_a_too_large_record_is_shown_by_its_beginning(large: Broker) -> None:
    append(large, bomb(Record(0, 1000, b"key", b"x" * (40 * MIB))))
    large.produce("orders", "next")
    listed = ask(large, "topics/orders/0/records")
    first, following = listed["records"]
    assert (first["key"]["text"], first["value"]["size"], first["value"]["text"]) == ("key", 40 * MIB, "x" * 2_000)
    assert (following["value"]["text"], listed["next"], listed["stopped"]) == ("next", 2, [STOPPED.format(0)])
    shown = ask(large, "topics/orders/0/records/0")
    assert (shown["record"]["value"]["size"], len(shown["record"]["value"]["text"])) == (40 * MIB, MIB)
    assert shown["stopped"] == [STOPPED.format(0)]
    (payload,) = (row for row in shown["batch"]["rows"] if row["name"] == "records" and row.get("problem"))
    assert payload["problem"].startswith("only its beginning is decompressed: 16,777,216 bytes")


def test_records_beyond_the_size_limit_of_a_page_are_omitted(large: Broker) -> None:
    append(large, bomb(*(Record(0, 0, None, b"x" * MIB) for _ in range(40))))
    large.produce("orders", "next")
    listed = ask(large, "topics/orders/0/records")
    assert [each["offset"] for each in listed["records"]] == [*range(16), 40]
    assert ask(large, "topics/orders/0/records?text=next")["stopped"] == [STOPPED.format(0)]
    assert ask(large, "topics/orders/0/records/30")["record"] is None


def test_many_decompression_bombs_share_one_size_limit() -> None:
    batch = bomb(Record(0, 0, None, b"x" * (10 * MIB)))
    part = explain_records(batch * 50)
    payloads = [each.payload for _, each in part.iterate_parts() if each.payload is not None]
    assert sum(map(len, payloads)) <= MOST_DECOMPRESSED_BYTES and len(payloads) == 50
    assert len(list(part.iterate_problems())) >= 49


def test_a_batch_with_a_too_large_compressed_block_is_reported(large: Broker) -> None:
    append(large, bomb(Record(0, 0, None, b"x" * (20 * MIB)), codec=Compression.GZIP))
    listed = ask(large, "topics/orders/0/records")
    assert (listed["records"][0]["value"]["size"], listed["stopped"]) == (20 * MIB, [STOPPED.format(0)])


def test_only_the_selected_large_value_is_saved_completely(explored: Broker) -> None:
    explored.create_topic("orders")
    append(explored, bomb(Record(0, 0, b"key", b"x" * (20 * MIB)), Record(0, 0, None, b"other")))
    partition = explored.call_on_loop(lambda: explored.running.cluster.image.topics["orders"].find_partition(0))

    def part(offset: int, *, is_key: bool) -> list[Any] | None:
        pieces: list[Any] | None = explored.loop.run_on_loop(
            log_pages.read_key_or_value(partition, offset, is_key=is_key)
        )
        return pieces

    whole = part(0, is_key=False) or []
    assert b"".join(whole) == b"x" * (20 * MIB) and max(map(len, whole)) <= MIB
    assert [part(0, is_key=True), part(1, is_key=False)] == [[b"key"], [b"other"]]
    assert part(1, is_key=True) is part(2, is_key=True) is None


@pytest.mark.parametrize("payload", [b"", b"\x10", b"\xff" * 20, b"\x02\0\0\0\7", b"\x20\0\0\0\x0eabc"])
def test_a_value_in_a_corrupt_batch_cannot_be_saved(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        log_pages._DecompressedStream(iter([payload])).read_key_or_value(2, 0, is_key=False)


def test_a_batch_too_large_to_check_is_not_reported_as_damage_and_not_read_completely(
    explored: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    explored.create_topic("orders")
    append(explored, bomb(Record(0, 0, None, b"x" * (20 * MIB))))
    read: list[int] = []
    payload_of = inspected_records.get_uncompressed_payload

    def noted(*where: Any) -> Any:
        read.append(where[-1])
        return payload_of(*where)

    monkeypatch.setattr(inspected_records, "get_uncompressed_payload", noted)
    assert ask(explored, "files/damage?path=orders-0/00000000000000000000.log") == []
    assert read == [BATCH_BYTES]
