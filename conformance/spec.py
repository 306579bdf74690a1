"""The records that every client writes and every client must read back: made here, handed on as a file of JSON lines.

What a client cannot express is taken out for it by `for_writer`. Writing and reading are the clients' own business.

A line is one record; bytes are base64, null is null, and a timestamp (ms) of null is "whatever the writer set":

    {"partition": 0, "timestamp": 1700000000000, "key": "a2V5", "value": null, "headers": [["name", "dmFsdWU="]]}
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
FIRST_TIMESTAMP_MS = 1_700_000_000_000
# Below max.message.bytes (1,048,588) and Java's max.request.size (1,048,576) with the batch, whatever a codec adds.
LARGE_BYTES = 1_047_000
SMALL_RECORDS = 400

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as it must come out of the partition, at the offset that is its place there."""

    partition: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def every_record() -> list[Record]:
    """The records in the order in which a client sends them; the same ones in every run."""
    bodies = [*_shapes(), *_small(), *_large()]
    return [
        Record(place % PARTITIONS, FIRST_TIMESTAMP_MS + place * 7 - place % 5 * 20, key, value, headers)
        for place, (key, value, headers) in enumerate(bodies)
    ]


Body = tuple[bytes | None, bytes | None, Headers]


def _shapes() -> Iterable[Body]:
    """Every kind of key, value and header that means something else than its neighbours."""
    all_bytes = bytes(range(256))
    yield b"key", b"value", ()
    yield None, b"no key", ()
    yield b"no value", None, ()
    yield None, None, ()
    yield b"empty value", b"", ()
    yield b"", b"empty key", ()
    yield b"", b"", ()
    yield None, b"", ()
    yield all_bytes, all_bytes, ()
    yield "Schlüssel €".encode(), "値 😀".encode(), ()
    yield b"\n\r\t\0", b"\0\n\0", ()
    yield b"one header", b"v", (("name", b"value"),)
    yield b"empty header", b"v", (("empty", b""),)
    yield b"null header", b"v", (("null", None),)
    yield b"nameless header", b"v", (("", b"value"),)
    yield b"binary header", b"v", (("binary", all_bytes),)
    yield b"header in UTF-8", b"v", (("naïve €", "ß".encode()),)
    yield b"three headers", b"v", (("c", b"1"), ("a", b"2"), ("b", b"3"))
    yield b"repeated header", b"v", (("a", b"1"), ("a", b"2"), ("a", b"1"))
    yield b"repeated header, apart", b"v", (("a", b"1"), ("b", b"2"), ("a", b"3"))
    yield None, None, (("alone", b"header"),)
    yield b"many headers", b"v", tuple((f"h{place}", b"x" * place) for place in range(100))
    yield b"k" * 5000, b"long key", ()


def _small() -> Iterable[Body]:
    """Enough to fill batches with, of lengths around those where a varint grows."""
    lengths = (0, 1, 62, 63, 64, 65, 127, 128, 129, 1000)
    for place in range(SMALL_RECORDS):
        yield b"k%d" % place, b"v%d " % place + b"abc" * lengths[place % len(lengths)], ()


def _large() -> Iterable[Body]:
    """Some that fit into no batch with another; the random one no codec makes smaller."""
    source = random.Random(1)
    yield b"large, compressible", b"minibroker " * (LARGE_BYTES // 11), ()
    yield b"large, random", source.randbytes(LARGE_BYTES), ()
    yield b"100 KB", source.randbytes(50_000) * 2, ()


def _kcat_can(record: Record) -> bool:
    """Headers reach kcat as `name=value` on its command line; it passes over an empty message without a key."""
    values = b"".join(value or b"" for _, value in record.headers)
    named = all(name for name, _ in record.headers)
    return named and b"\0" not in values and (record.key, record.value) != (None, b"")


def _kafkajs_can(record: Record) -> bool:
    """Headers are an object of names to values, so equal names stand together; it fails at null values."""
    names = [name for name, _ in record.headers]
    together = sorted(names, key=names.index) == names
    return together and all(value is not None for _, value in record.headers)


_LIMITS: dict[str, Callable[[Record], bool]] = {"kcat": _kcat_can, "kafkajs": _kafkajs_can}
_WITHOUT_TIMESTAMPS = {"kcat"}


def for_writer(writer: str) -> list[Record]:
    """Return what this client can write of `every_record()`."""
    able = _LIMITS.get(writer)
    records = [record for record in every_record() if able is None or able(record)]
    return [record._replace(timestamp=None) for record in records] if writer in _WITHOUT_TIMESTAMPS else records


def write_file(records: Iterable[Record], file: Path) -> None:
    """Writes the JSON lines."""
    with file.open("w") as out:
        for record in records:
            out.write(json.dumps(_as_json(record)) + "\n")


def _as_json(record: Record) -> dict[str, object]:
    headers = [[name, _base64(value)] for name, value in record.headers]
    return {**record._asdict(), "key": _base64(record.key), "value": _base64(record.value), "headers": headers}


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def read_file(file: Path) -> list[Record]:
    """The records of a file that `write_file` made."""
    return [_from_json(json.loads(line)) for line in file.read_text().splitlines()]


def _from_json(fields: dict[str, Any]) -> Record:
    headers = tuple((name, _bytes(value)) for name, value in fields["headers"])
    return Record(fields["partition"], fields["timestamp"], _bytes(fields["key"]), _bytes(fields["value"]), headers)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def shown(record: Record) -> str:
    """The record for a person, long values cut."""
    return repr(record._replace(key=_cut(record.key), value=_cut(record.value)))


def _cut(data: bytes | None) -> bytes | None:
    return data if data is None or len(data) <= 60 else data[:40] + b"... %d bytes" % len(data)
