"""What it costs to give old clients records of a newer message format, beside the bytes that go as they are stored.

A topic is filled with batches of one codec; Fetch of 1 MB of it, again and again, by the same C client as all fetches.
Every sample has a broker of its own: memory that an earlier row has left behind would hide what this one takes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import exchanges
import programs
import wire
from machine import forget_peak, peak_kib, resident_kib
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.record import Record
from report import Case, Column, Sample, Section
from servers import Target

MB = 1_000_000
RECORDS = 100  # of a batch
VALUE_BYTES = 1000
BATCHES = 30  # 3 MB
FORMAT_0, FORMAT_1, NEWEST = 1, 3, 12  # versions of Fetch
IN_FORMAT_1 = {"message.format.version": "0.10.2"}
ELIDE = {"record.attributes.elide": "true"}


def sections(seconds: float) -> list[Section]:
    """Rows of `seconds` each."""
    cases = [
        _fetch("stored as the client knows it", NEWEST, Compression.NONE, seconds),
        _fetch(
            "the same, format 1 to Fetch v3", FORMAT_1, Compression.NONE, seconds, {"message.format.version": "0.10.2"}
        ),
        *(
            _fetch(f"format 2 to {kind}, {codec.name.lower()}", version, codec, seconds)
            for kind, version in (("1", FORMAT_1), ("0", FORMAT_0))
            for codec in Compression
            if codec != Compression.ZSTD
        ),
        *(
            _fetch(f"without attributes to Fetch v12, {codec.name.lower()}", NEWEST, codec, seconds, ELIDE)
            for codec in Compression
        ),
    ]
    columns = (
        Column("mb_rate", "MB/s", higher_is_better=True),
        Column("server_ms", "server ms/MB"),
        Column("record_us", "server us a record"),
        Column("grown_mib", "RSS for it, MiB"),
    )
    title = (
        f"Fetch of up to 1 MB from where {RECORDS} records of 1 KB make a batch; MB are those of the records' values"
    )
    return [Section("conversion", title, columns, cases)]


def _fetch(
    name: str, version: int, codec: Compression, seconds: float, configs: Mapping[str, str] = wire.NO_CONFIGS
) -> Case:
    def measure(target: Target) -> Sample:
        if target.start is None:
            raise programs.Unavailable("memory is measured in a server of its own")
        with target.start() as server, wire.topic(server, configs=configs) as topic:
            with wire.Client(server) as client:
                for index in range(BATCHES):
                    client.produce(topic, _batch(index, codec))
            request = wire.fetch_request(topic, MB, version=version)
            error_at = wire.fetch_error_at(topic, version)
            resident = resident_kib(server.pid)
            forget_peak(server.pid)
            exchanges.run(server, request, error_at, seconds / 4)
            ran = exchanges.run(server, request, error_at, seconds)
            grown = peak_kib(server.pid) - resident
        answer_bytes = ran["received_bytes"] / ran["requests"]
        records = round(answer_bytes / (len(_batch(0, codec)) / RECORDS) / RECORDS) * RECORDS * ran["requests"]
        if not records:
            raise programs.Failed("the answers hold no batch")
        megabytes = records * VALUE_BYTES / MB
        return {
            "mb_rate": megabytes / ran["seconds"],
            "server_ms": ran["server_cpu_seconds"] / megabytes * 1e3,
            "record_us": ran["server_cpu_seconds"] / records * 1e6,
            "grown_mib": grown / 1024,
        }

    return Case(name, measure)


def _batch(index: int, codec: Compression) -> bytes:
    """Values of hexadecimal text, which codecs halve."""
    source = random.Random(index)
    now = wire.now_ms()
    return bytes(
        build_batch(
            [Record(timestamp=now, value=source.randbytes(VALUE_BYTES // 2).hex().encode()) for _ in range(RECORDS)],
            compression=codec,
        )
    )
