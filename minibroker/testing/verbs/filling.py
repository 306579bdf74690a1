"""Topics and records from a dictionary, YAML, JSON or JSON lines, for `Broker.fill`.

    orders: [first, second]                     # values; the topic is created if need be
    users:
      partitions: 3
      config: {cleanup.policy: compact}
      records:
        - {key: ann, value: {age: 7}, partition: 1, headers: {source: test}, timestamp_ms: 1700000000000}

    _schemas:                                   # subjects of the schema registry
      users-value: {type: record, name: User, fields: [{name: age, type: int}]}
      orders-value: {kind: JSON, schema: {type: object}}

In JSON lines each line is a record that names its topic. A value that is neither text nor null is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from minibroker.protocol.records.record import Record
from minibroker.testing.callers import PACKAGE
from minibroker.testing.embedded.given_settings import format_setting
from minibroker.testing.yaml_files import parse_yaml, read_at_most

RECORD_WORDS: Final = frozenset({"key", "value", "partition", "headers", "timestamp_ms"})
TOPIC_WORDS: Final = frozenset({"partitions", "config", "records"})
PARSERS: Final[dict[str, Callable[[bytes], Any]]] = {".json": json.loads, ".yaml": parse_yaml, ".yml": parse_yaml}
MAXIMUM_BYTES = 256 << 20
SCHEMAS_TOPIC: Final = "_schemas"
SCHEMA_WORDS: Final = frozenset({"schema", "kind", "references"})


class FillError(ValueError):
    """A source that cannot be put into topics; the message is one line."""

    __module__ = PACKAGE


@dataclass(frozen=True)
class NewRecord:
    """A record to append."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None

    def make_record(self, now_ms: int) -> Record:
        """Return the record for the log, with the timestamp `now_ms` if it has none."""
        return Record(
            -1, now_ms if self.timestamp_ms is None else self.timestamp_ms, self.key, self.value, self.headers
        )


class NewSchema(NamedTuple):
    """A schema to register, as `RegistryVerbs.register` takes it."""

    subject: str
    schema: Any
    kind: str = "AVRO"
    references: Sequence[tuple[str, str, int]] = ()


@dataclass
class NewTopic:
    """A topic to create or append to; `partitions` is None for the broker's default. `schemas` are the registry's."""

    name: str
    partitions: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    records: list[NewRecord] = field(default_factory=list)
    schemas: list[NewSchema] = field(default_factory=list)


def parse_new_topics(source: Mapping[str, Any] | str | Path) -> list[NewTopic]:
    """Return the topics of a dictionary, or of a file (.yaml, .yml, .json, .jsonl). Raises FillError, OSError."""
    if isinstance(source, Mapping):
        return [_parse_new_topic(name, given) for name, given in source.items()]
    path = Path(source)
    try:
        if path.suffix == ".jsonl":
            return list(_parse_json_lines(path))
        return parse_new_topics(_read_mapping_from_file(path))
    except ValueError as error:
        raise FillError(f"{path}: {error}") from None


def _read_mapping_from_file(path: Path) -> Mapping[str, Any]:
    """Return the mapping of topics in a YAML or JSON file. Raises FillError, OSError."""
    if path.suffix not in PARSERS:
        raise FillError(f"{path.suffix or 'no suffix'!r} is not one of .yaml, .yml, .json, .jsonl")
    found = PARSERS[path.suffix](read_at_most(path, MAXIMUM_BYTES))
    if not isinstance(found, dict):
        raise FillError("a mapping of topics is expected")
    return found


def _parse_json_lines(path: Path) -> Iterator[NewTopic]:
    """Yield the topics of a file in which each line is a record with its topic. Raises FillError."""
    topics: dict[str, NewTopic] = {}
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    _add_record_of_line(json.loads(line), topics)
                except ValueError as error:
                    raise FillError(f"line {number}: {error}") from None
    yield from topics.values()


def _add_record_of_line(line: Any, topics: dict[str, NewTopic]) -> None:
    """Add the record of a line of JSON to its topic. Raises FillError."""
    if not isinstance(line, dict) or not isinstance(line.get("topic"), str):
        raise FillError('a record is expected, such as {"topic": "orders", "value": "first"}')
    name = line.pop("topic")
    topics.setdefault(name, NewTopic(name)).records.append(_parse_new_record({"value": None, **line}))


def _parse_new_topic(name: Any, records: Any) -> NewTopic:
    """Return a topic with its records from a name and a list of records, or a mapping. Raises FillError."""
    if not isinstance(name, str):
        raise FillError(f"a topic's name cannot be {name!r}")
    if records is None:
        return NewTopic(name)
    if isinstance(records, list | tuple):
        return NewTopic(name, records=[_parse_new_record(each) for each in records])
    if not isinstance(records, Mapping):
        raise FillError(f"topic {name}: a list of records or a mapping is expected, not {records!r}")
    if name == SCHEMAS_TOPIC and not records.keys() <= TOPIC_WORDS:
        return NewTopic(name, schemas=[_parse_new_schema(str(subject), each) for subject, each in records.items()])
    _check_known_fields(f"topic {name}", records, TOPIC_WORDS)
    partitions = records.get("partitions")
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise FillError(f"topic {name}: partitions cannot be {partitions!r}")
    config = {str(key): format_setting(value) for key, value in (records.get("config") or {}).items()}
    return NewTopic(name, partitions, config, [_parse_new_record(each) for each in records.get("records") or ()])


def _parse_new_schema(subject: str, value: Any) -> NewSchema:
    if not isinstance(value, Mapping) or "schema" not in value:
        return NewSchema(subject, value)
    _check_known_fields(f"subject {subject}", value, SCHEMA_WORDS)
    references = value.get("references") or ()
    return NewSchema(subject, value["schema"], str(value.get("kind", "AVRO")), [tuple(each) for each in references])


def _parse_new_record(value_or_mapping: Any) -> NewRecord:
    """Return a record from its value, or from a mapping with words such as `key`. Raises FillError."""
    if not isinstance(value_or_mapping, Mapping) or not set(value_or_mapping) & RECORD_WORDS:
        return NewRecord(_encode_value(value_or_mapping))
    _check_known_fields("a record", value_or_mapping, RECORD_WORDS)
    partition, timestamp_ms = value_or_mapping.get("partition", 0), value_or_mapping.get("timestamp_ms")
    if type(partition) is not int or (timestamp_ms is not None and type(timestamp_ms) is not int):
        raise FillError(f"partition and timestamp_ms are numbers, not {partition!r} and {timestamp_ms!r}")
    headers = value_or_mapping.get("headers") or {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return NewRecord(
        _encode_value(value_or_mapping.get("value")),
        _encode_value(value_or_mapping.get("key")),
        partition,
        tuple((str(key), _encode_value(value)) for key, value in pairs),
        timestamp_ms,
    )


def _check_known_fields(place: str, mapping: Mapping[str, Any], known_fields: frozenset[str]) -> None:
    """Raise FillError for a field that is not known; `place` is where it is, such as "topic orders"."""
    for word in mapping:
        if word not in known_fields:
            raise FillError(f"{place} has no {word!r}; it has {', '.join(sorted(known_fields))}")


def _encode_value(value: Any) -> bytes | None:
    """Return bytes and None as they are, a text in UTF-8, other values as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
