"""Topics and records from a dictionary, YAML, JSON or JSON lines, for `Broker.fill`.

    orders: [first, second]                     # values; the topic is created if need be
    users:
      partitions: 3
      config: {cleanup.policy: compact}
      records:
        - {key: ann, value: {age: 7}, partition: 1, headers: {source: test}, timestamp_ms: 1700000000000}

In JSON lines each line is a record that names its topic. A value that is neither text nor null is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from minibroker.protocol.records.record import Record
from minibroker.testing.embedded_broker import text_of_setting
from minibroker.testing.yaml_files import read_at_most, yaml_of

RECORD_WORDS: Final = frozenset({"key", "value", "partition", "headers", "timestamp_ms"})
TOPIC_WORDS: Final = frozenset({"partitions", "config", "records"})
PARSERS: Final[dict[str, Callable[[bytes], Any]]] = {".json": json.loads, ".yaml": yaml_of, ".yml": yaml_of}
MAXIMUM_BYTES = 256 << 20


class FillError(ValueError):
    """A source that cannot be put into topics; the message is one line."""


@dataclass(frozen=True)
class NewRecord:
    """A record to append."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    def record(self, now_ms: int) -> Record:
        """Return the record for the log, with the timestamp `now_ms` if it has none."""
        return Record(
            -1, now_ms if self.timestamp_ms is None else self.timestamp_ms, self.key, self.value, self.headers
        )


@dataclass
class NewTopic:
    """A topic to create or append to; `partitions` is None for the broker's default."""

    name: str
    partitions: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    records: list[NewRecord] = field(default_factory=list)


def topics_from(source: Mapping[str, Any] | str | Path) -> list[NewTopic]:
    """Return the topics of a dictionary, or of a file (.yaml, .yml, .json, .jsonl). Raises FillError, OSError."""
    if isinstance(source, Mapping):
        return [_topic(name, told) for name, told in source.items()]
    path = Path(source)
    try:
        if path.suffix == ".jsonl":
            return list(_topics_of_lines(path))
        return topics_from(_mapping(path))
    except ValueError as error:
        raise FillError(f"{path}: {error}") from None


def _mapping(path: Path) -> Mapping[str, Any]:
    if path.suffix not in PARSERS:
        raise FillError(f"{path.suffix or 'no suffix'!r} is not one of .yaml, .yml, .json, .jsonl")
    found = PARSERS[path.suffix](read_at_most(path, MAXIMUM_BYTES))
    if not isinstance(found, dict):
        raise FillError("a mapping of topics is expected")
    return found


def _topics_of_lines(path: Path) -> Iterator[NewTopic]:
    topics: dict[str, NewTopic] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    _take_line(json.loads(line), topics)
                except ValueError as error:
                    raise FillError(f"line {number}: {error}") from None
    yield from topics.values()


def _take_line(told: Any, topics: dict[str, NewTopic]) -> None:
    if not isinstance(told, dict) or not isinstance(told.get("topic"), str):
        raise FillError('a record is expected, such as {"topic": "orders", "value": "first"}')
    name = told.pop("topic")
    topics.setdefault(name, NewTopic(name)).records.append(_record({"value": None, **told}))


def _topic(name: Any, told: Any) -> NewTopic:
    if not isinstance(name, str):
        raise FillError(f"a topic's name cannot be {name!r}")
    if told is None:
        return NewTopic(name)
    if isinstance(told, list | tuple):
        return NewTopic(name, records=[_record(each) for each in told])
    if not isinstance(told, Mapping):
        raise FillError(f"topic {name}: a list of records or a mapping is expected, not {told!r}")
    _known(f"topic {name}", told, TOPIC_WORDS)
    partitions = told.get("partitions")
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise FillError(f"topic {name}: partitions cannot be {partitions!r}")
    config = {str(key): text_of_setting(value) for key, value in (told.get("config") or {}).items()}
    return NewTopic(name, partitions, config, [_record(each) for each in told.get("records") or ()])


def _record(told: Any) -> NewRecord:
    if not isinstance(told, Mapping) or not set(told) & RECORD_WORDS:
        return NewRecord(_bytes(told))
    _known("a record", told, RECORD_WORDS)
    partition, timestamp_ms = told.get("partition", 0), told.get("timestamp_ms")
    if type(partition) is not int or (timestamp_ms is not None and type(timestamp_ms) is not int):
        raise FillError(f"partition and timestamp_ms are numbers, not {partition!r} and {timestamp_ms!r}")
    headers = told.get("headers") or {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return NewRecord(
        _bytes(told.get("value")),
        _bytes(told.get("key")),
        partition,
        tuple((str(key), _bytes(value)) for key, value in pairs),
        timestamp_ms,
    )


def _known(what: str, told: Mapping[str, Any], words: frozenset[str]) -> None:
    for word in told:
        if word not in words:
            raise FillError(f"{what} has no {word!r}; it has {', '.join(sorted(words))}")


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
