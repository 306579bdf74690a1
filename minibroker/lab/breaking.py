"""A bit of a record flips in its file, as on a disk that fails silently."""

from __future__ import annotations

import os
from typing import Final

from minibroker.operating_system import close_file, open_file, read_at, write_at
from minibroker.testing.broker import Broker

FROM_END_BYTES: Final = 2  # behind the last value is the number of headers
BIT: Final = 0x10


def flip_bit(broker: Broker, topic: str, partition: int, offset: int) -> str:
    """Flip a bit near the end of a batch, where values are; return where. Raises LookupError, KafkaError."""
    found = broker.running.cluster.image.topics.get(topic)
    if found is None or not 0 <= partition < len(found.partitions):
        raise LookupError(f"there is no partition {topic}-{partition}")
    region = found.partitions[partition].log.read(offset, 1)
    if region is None:
        raise LookupError(f"{topic}-{partition} has no record at {offset}")
    position = region.position + region.size_bytes - FROM_END_BYTES
    file = open_file(region.file.path, os.O_RDWR)
    try:
        (byte,) = read_at(file, 1, position)
        write_at(file, bytes((byte ^ BIT,)), position)
    finally:
        close_file(file)
    place = f"byte {position} of {topic}-{partition}, in the batch with offset {offset}"
    broker.tell_witnesses("fault", f"flip a bit of {place}")
    return place
