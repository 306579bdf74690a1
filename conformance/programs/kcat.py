"""kcat: writes or reads the records of a specification, or asks what its other modes answer.

    python3 -m conformance.programs.kcat write|read BOOTSTRAP [PREFIX SPEC]...
    python3 -m conformance.programs.kcat admin BOOTSTRAP PREFIX

kcat itself is a program without a language: this drives it. It has no command to create a topic: the broker creates
what it asks about or writes to, with as many partitions as `num.partitions` says. The specification's format is in
`spec.py`.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from conformance.spec import CODECS, PARTITIONS, Headers, Record, read_file, shown

PATIENCE_S = 60
# The last topic is written with acks=1 and without idempotence, the others with both.
TOPICS = {**{codec: codec for codec in CODECS}, "plain": "none"}
KEY_END = b"<|key of kcat|>"
MESSAGE_END = b"<|message of kcat|>"


class Differs(Exception):
    """A difference between what came and what was written; the message says where."""


def kcat(bootstrap: str, *arguments: str | bytes, send: bytes | None = None) -> bytes:
    """Return what kcat prints. Raises Differs with its complaint if it fails."""
    command: list[str | bytes] = ["kcat", "-b", bootstrap, "-m", str(PATIENCE_S), *arguments]
    result = subprocess.run(command, input=send, capture_output=True, timeout=PATIENCE_S, check=False)
    if result.returncode != 0:
        raise Differs(f"{command} exits with {result.returncode}: {result.stderr.decode(errors='replace')}")
    return result.stdout


def create(bootstrap: str, topic: str) -> None:
    """By a question. A producer that finds no topic would look for it again a second later."""
    kcat(bootstrap, "-L", "-t", topic)


def write(bootstrap: str, topic: str, codec: str, records: list[Record], *, idempotent: bool) -> None:
    """Headers and nulls are options of kcat's command line: every run of records that agree in them is one call."""
    options = ["-P", "-t", topic, "-X", f"compression.codec={codec}", "-X", "message.max.bytes=1048588"]
    options += ["-X", "enable.idempotence=true", "-X", "acks=all"] if idempotent else ["-X", "acks=1"]
    create(bootstrap, topic)
    for (partition, headers, null_value), run in itertools.groupby(sorted_by_partition(records), options_of):
        arguments: list[str | bytes] = [*options, "-p", str(partition), "-D", MESSAGE_END, "-K", KEY_END]
        for name, value in headers:
            arguments += ["-H", name.encode() + (b"" if value is None else b"=" + value)]
        kcat(bootstrap, *arguments, *(["-Z"] if null_value else []), send=as_input(run))


def sorted_by_partition(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.partition)


def options_of(record: Record) -> tuple[int, Headers, bool]:
    return record.partition, record.headers, record.value is None


def as_input(records: Iterable[Record]) -> bytes:
    """A message without the end of a key has a null key; with -Z an empty key or value is null."""
    return b"".join(
        (b"" if record.key is None and record.value is not None else (record.key or b"") + KEY_END)
        + (record.value or b"")
        + MESSAGE_END
        for record in records
    )


def read(bootstrap: str, topic: str, expected: list[Record]) -> None:
    """Raises Differs at the first difference."""
    for partition in range(PARTITIONS):
        records = [record for record in expected if record.partition == partition]
        timestamps = all(record.timestamp is not None for record in records)
        form = ("%T " if timestamps else "") + "%o %K %S %h %k%s"
        options = ["-C", "-e", "-q", "-t", topic, "-p", str(partition), "-o", "beginning", "-X", "fetch.wait.max.ms=10"]
        printed = kcat(bootstrap, *options, "-f", form)
        position = 0
        for offset, record in enumerate(records):
            awaited = as_printed(offset, record)
            if not printed.startswith(awaited, position):
                came = printed[position : position + 200]
                raise Differs(f"{topic}-{partition} offset {offset}: expected {shown(record)}, got {came!r}")
            position += len(awaited)
        if position != len(printed):
            raise Differs(f"{topic}-{partition}: more than {len(records)} records: {printed[position:][:200]!r}")


def as_printed(offset: int, record: Record) -> bytes:
    """kcat prints a header's value up to its first NUL; a length of -1 is null."""
    headers = b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value.split(b"\0")[0]) for name, value in record.headers
    )
    key_length, value_length = (-1 if data is None else len(data) for data in (record.key, record.value))
    timestamp = b"" if record.timestamp is None else b"%d " % record.timestamp
    numbers = b"%d %d %d " % (offset, key_length, value_length)
    return timestamp + numbers + headers + b" " + (record.key or b"") + (record.value or b"")


def check_other_modes(bootstrap: str, topic: str) -> int:
    """Metadata, offsets by time, and reading from such places. Returns the number of checks; raises Differs."""
    for value in (b"zero", b"one", b"two"):
        kcat(bootstrap, "-P", "-t", topic, "-p", "1", send=value)
    came = [json.loads(line) for line in kcat(bootstrap, *consuming(topic), "-J").splitlines()]
    times = [record["ts"] for record in came]
    metadata = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    broker = metadata["brokers"][0]["id"]
    partitions = [
        {"partition": place, "leader": broker, "replicas": [{"id": broker}], "isrs": [{"id": broker}]}
        for place in range(PARTITIONS)
    ]
    checks = [
        ([record["payload"] for record in came], ["zero", "one", "two"]),
        ([record["offset"] for record in came], [0, 1, 2]),
        ({record["tstype"] for record in came}, {"create"}),
        (metadata["topics"], [{"topic": topic, "partitions": partitions}]),
        ([each["name"] for each in metadata["brokers"]], [bootstrap]),
        (metadata["controllerid"], broker),
        (queried(bootstrap, topic, 0), 0),
        (queried(bootstrap, topic, times[0]), 0),
        (queried(bootstrap, topic, times[2]), times.index(times[2])),
        (queried(bootstrap, topic, times[2] + 1), -1),
        (queried(bootstrap, topic, -2), 0),
        (queried(bootstrap, topic, -1), 3),
        (kcat(bootstrap, *consuming(topic, "1"), "-f", "%s "), b"one two "),
        (kcat(bootstrap, *consuming(topic, "-1"), "-f", "%s "), b"two "),
        (kcat(bootstrap, *consuming(topic, "end"), "-f", "%s "), b""),
        (kcat(bootstrap, *consuming(topic, f"s@{times[0]}"), "-f", "%s "), b"zero one two "),
    ]
    for place, (got, awaited) in enumerate(checks):
        if got != awaited:
            raise Differs(f"check {place}: expected {awaited!r}, got {got!r}")
    return len(checks)


def consuming(topic: str, start: str = "beginning") -> list[str]:
    return ["-C", "-e", "-q", "-t", topic, "-p", "1", "-o", start, "-X", "fetch.wait.max.ms=10"]


def queried(bootstrap: str, topic: str, timestamp: int) -> int:
    """The offset that -Q prints for a time: it prints "topic [1] offset 2"."""
    printed = kcat(bootstrap, "-Q", "-t", f"{topic}:1:{timestamp}").decode()
    return int(printed.split()[-1])


def main(action: str, bootstrap: str, *rest: str) -> int:
    try:
        if action == "admin":
            print(f"kcat: {check_other_modes(bootstrap, f'{rest[0]}-modes')} answers as expected")
            return 0
        for prefix, spec in zip(rest[::2], rest[1::2], strict=True):
            records = read_file(Path(spec))
            for name, codec in TOPICS.items():
                if action == "write":
                    write(bootstrap, f"{prefix}-{name}", codec, records, idempotent=name != "plain")
                else:
                    read(bootstrap, f"{prefix}-{name}", records)
            print(f"kcat: {action} of {len(records)} records in each of {len(TOPICS)} topics")
    except Differs as difference:
        print(difference)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
