"""Batches that others made, and random ones, for the tests of record batches.

`golden/` holds what Kafka's Java client and librdkafka write, with the programs that made them write it.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from hypothesis import strategies as st

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import encode_record, recompress_batch_in_steps
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Record
from minibroker.protocol.records.varints import Bytes
from minibroker.protocol.steps import run_all_steps

GOLDEN = Path(__file__).parent / "golden"
CLIENTS = ("java", "librdkafka")
CODECS = tuple(Compression)
T = 1700000000000


def golden(client: str) -> dict[str, bytes]:
    """The batches of one client by their names, which say what is in them."""
    batches = json.loads((GOLDEN / f"{client}.json").read_text())
    return {name: bytes.fromhex(batch) for name, batch in batches.items()}


JAVA = golden("java")

SMALL = [
    Record(0, T, b"key", b"value"),
    Record(1, T + 1, None, b"no key"),
    Record(2, T + 2, b"no value", None),
    Record(3, T - 5, b"", b"", (("empty", b""), ("null", None), ("twice", b"1"), ("twice", b"2"))),
    Record(4, T + 100000, "clé".encode(), b"x" * 300, (("ключ", b"\x00\xff"),)),
]
LARGE = [Record(index, T, None, b"minibroker " * 10000) for index in range(3)]

_bytes = st.none() | st.binary(max_size=80)
_headers = st.lists(st.tuples(st.text(max_size=10), _bytes), max_size=3).map(tuple)
_timestamps = st.integers(T - 100, T + 10000) | st.integers(0, 2**62)  # aiokafka takes a first -1 for none


def records(min_size: int = 1, max_size: int = 20) -> st.SearchStrategy[list[Record]]:
    """Records with offsets from 0 on, and all else as it may come."""
    fields = st.tuples(_timestamps, _bytes, _bytes, _headers)
    return st.lists(fields, min_size=min_size, max_size=max_size).map(
        lambda all_fields: [Record(offset, *fields) for offset, fields in enumerate(all_fields)]
    )


def payload(batch: list[Record], base_timestamp: int = T) -> bytes:
    """The bytes of the records of a batch, uncompressed."""
    return b"".join(
        encode_record(record, index, record.timestamp - base_timestamp) for index, record in enumerate(batch)
    )


def recompress(batch: Bytes, codec: int, max_bytes: int = 1 << 30) -> bytearray:
    """The batch under another codec; MESSAGE_TOO_LARGE with its size if it has more than `max_bytes` then."""
    header = check_batch(batch)
    return run_all_steps(
        recompress_batch_in_steps(batch, header, codec, None, max_bytes=max_bytes, make_error=_too_large)
    )


def _too_large(size_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{size_bytes} bytes")


def similar_records(random: Random) -> list[Record]:
    """Return records of a producer: long runs of equal layout, with others among them, or none alike."""
    count = random.choice((1, 17, 40, 100, random.randrange(1, 400)))
    size = random.choice((0, 1, 10, 57, 63, 64, 100, 5000 if count < 50 else 9, 9000 if count < 50 else 3))
    key = random.choice((None, b"", b"k", b"k" * 70))
    headers = random.choice(((), (), (("a", b"1"), ("b", None)), tuple((f"h{n}", b"x" * n) for n in range(20))))
    spread_ms = random.choice((0, 1, 5, 100, 10000))
    likeness = random.choice((0.5, 0.97, 1.0))
    direction = random.choice((1, 1, -1))
    batch, timestamp = [], T
    for index in range(count):
        alike = random.random() < likeness
        timestamp += direction * random.randrange(spread_ms + 1)
        value = bytes(size if alike else random.randrange(2 * size + 2))
        batch.append(Record(index, timestamp, key if alike else None, value, headers if alike else ()))
    return batch


def damaged(random: Random, data: bytes) -> bytes:
    """`data` with one to three bytes changed, added, removed or swapped, often so that it nearly still parses."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        if not out:
            break
        at, other = random.randrange(len(out)), random.randrange(len(out))
        match random.randrange(8):
            case 0:
                out[at] ^= 1 << random.randrange(8)
            case 1:
                out[at] = random.randrange(256)
            case 2:
                out[at] = (out[at] + random.choice((-2, -1, 1, 2))) % 256
            case 3:
                out[at : at + 1] = bytes((out[at] | 0x80, 0))  # a varint of more bytes than it needs
            case 4:
                out.insert(at, random.randrange(256))
            case 5:
                del out[at]
            case 6:
                del out[at:]
            case 7:
                out[at : at + 3], out[other : other + 3] = out[other : other + 3], out[at : at + 3]
    return bytes(out)
