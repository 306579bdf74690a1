"""Prints what records without attributes save, for docs/message-formats.md: some shapes of records, in all codecs.

Not part of a test run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from minibroker.protocol.records.batch import check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.record import Record
from tests.protocol.records.samples import T


def counters(random: Random) -> Iterator[Record]:
    for index in range(500):
        yield Record(index, T + index, b"sensor-%04d" % random.randrange(1000), b"%d" % random.randrange(10000))


def events(random: Random) -> Iterator[Record]:
    for index in range(200):
        event = {
            "id": random.randrange(10**9),
            "event": random.choice(["view", "click", "buy"]),
            "page": f"/items/{random.randrange(10**5)}",
            "time": T + index,
        }
        yield Record(index, T + index, b"user-%d" % random.randrange(10**6), json.dumps(event).encode())


def kilobytes(random: Random) -> Iterator[Record]:
    for index in range(50):
        yield Record(index, T + index, None, random.randbytes(1024))


def main() -> None:
    for shape in (counters, events, kilobytes):
        saved = []
        for codec in Compression:
            batch = build_batch(shape(Random(1)), compression=codec)
            shorter = elide_attributes(batch, check_batch(batch))
            assert shorter is not None
            saved.append(f"{codec.name.lower()} {100 * (1 - len(shorter) / len(batch)):.1f} %")
        print(shape.__name__, *saved)


if __name__ == "__main__":
    main()
