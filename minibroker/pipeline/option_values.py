"""Parses the values of options: numbers, switches, times, JSON by partition.

`options` lists those of readers, `sink/sink_settings` those of writers. All functions raise `OptionError` with one line
that begins with the option. Options of Spark's own Kafka source and settings of Kafka's client that have no meaning
here are accepted, and one warning names them: so jobs for Spark's connector run unchanged.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.quantities import parse_milliseconds

log: Final = logging.getLogger(__name__)

Value = TypeVar("Value", bound=str)
Default = TypeVar("Default", int, int | None)

INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1


class GivenOptions:
    """Options by their names in any case, as Spark changes it. A number is at most `most`; `prefix` is for messages."""

    def __init__(self, options: Mapping[str, str], prefix: str = "", most: int = INT64_MAX) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._prefix = prefix
        self._most = most
        self.known: set[str] = set()  # the names that were asked for, in lower case

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get_remaining_options(self) -> dict[str, str]:
        """Return the options that nobody has asked for."""
        return {name: value for name, value in self._options.items() if name not in self.known}

    def get_text(self, name: str) -> str | None:
        """Return the value of an option without spaces around it; None if it is not given."""
        self.known.add(name.lower())
        text = self._options.get(name.lower())
        return None if text is None else text.strip()

    def get_word(self, name: str, allowed: Sequence[Value]) -> Value:
        """Return one of some words; the first one is the default."""
        text = self.get_text(name)
        return allowed[0] if text is None else parse_one_of(self._prefix + name, text, allowed)

    def get_switch(self, name: str, default: bool) -> bool:
        """Return whether an option is true."""
        text = self.get_text(name)
        return default if text is None else parse_one_of(self._prefix + name, text, ("true", "false")) == "true"

    def get_number(self, name: str, default: Default, least: int = 0) -> int | Default:
        """Return a whole number from `least` on."""
        text = self.get_text(name)
        return default if text is None else parse_number(self._prefix + name, text, least, self._most)


def parse_number(option: str, text: str, least: int = 0, most: int = INT64_MAX) -> int:
    """Return a whole number from `least` to `most`."""
    stripped = text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,19}", stripped) and least <= int(stripped) <= most:
        return int(stripped)
    limit = "on" if most == INT64_MAX else f"to {most}"
    raise OptionError(f"{option}: {text!r} is not a whole number from {least} {limit}")


def parse_one_of(option: str, text: str, allowed: Sequence[Value]) -> Value:
    """Return one of some words, in any case."""
    for word in allowed:
        if text.strip().lower() == word.lower():
            return word
    raise OptionError(f"{option}: {text!r} is none of {', '.join(allowed)}")


def parse_duration_ms(option: str, text: str) -> int:
    """Return a time in ms, as Spark writes it: `500ms`, `30s`, `15m`, `2h`, `1d`; in ms without a unit."""
    stripped = text.strip().lower()
    try:
        return round(parse_milliseconds(int(stripped) if re.fullmatch("[0-9]{1,15}", stripped) else stripped))
    except ValueError:
        raise OptionError(f"{option}: {text!r} is not a time like 500ms, 30s, 15m, 2h or 1d") from None


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Return names separated by commas, at least one."""
    given = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not given:
        raise OptionError(f"{option}: it has no topic")
    return given


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Return partitions by topic, as in `{"orders": [0, 1]}`."""
    example = '{"orders": [0, 1]}'
    found = []
    for topic, numbers in _parse_json_by_topic(option, text, example).items():
        if not isinstance(numbers, list) or not all(_is_partition(each) for each in numbers):
            raise OptionError(f"{option}: {text!r} is not like {example}")
        found += [TopicPartition(topic, each) for each in numbers]
    if not found:
        raise OptionError(f"{option}: it has no partition")
    return tuple(sorted(set(found)))


def parse_numbers_by_partition(option: str, text: str, least: int, example: str) -> dict[TopicPartition, int]:
    """Return a number from `least` on for each partition, as in `{"orders": {"0": 23}}`."""
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _parse_json_by_topic(option, text, example).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{option}: {text!r} is not like {example}")
        for partition, value in numbers.items():
            if not partition.isascii() or not partition.isdigit() or not _is_partition(int(partition[:11])):
                raise OptionError(f"{option}: {partition!r} is not the number of a partition")
            if not _is_whole_number(value) or not least <= value <= INT64_MAX:
                raise OptionError(f"{option}: {topic}-{partition} has {value!r}, not a whole number from {least} on")
            found[TopicPartition(topic, int(partition))] = value
    return dict(sorted(found.items()))


def _parse_json_by_topic(option: str, text: str, example: str) -> Mapping[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"{option}: {text!r} is not like {example}")
    return parsed


def _is_partition(value: object) -> bool:
    return _is_whole_number(value) and 0 <= value <= INT32_MAX  # type: ignore[operator]


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


KAFKA: Final = "kafka."
# Spark's connector polls in a consumer group, and retries by itself; its client is Java's.
OPTIONS: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
GROUP: Final = (
    "auto.commit.interval.ms",
    "client.rack",
    "exclude.internal.topics",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
)
CLIENT: Final = (
    "auto.include.jmx.reporter",
    "enable.metrics.push",
    "log.connection.close",
    "metadata.max.age.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "security.providers",
    "socket.keepalive.enable",
    "statistics.interval.ms",
)
PRODUCER: Final = ("partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "client.rack")
OF_READERS: Final = {name.lower(): name for name in (*OPTIONS, *(f"{KAFKA}{name}" for name in (*GROUP, *CLIENT)))}
OF_WRITERS: Final = {f"{KAFKA}{name}": f"{KAFKA}{name}" for name in (*PRODUCER, *CLIENT)}


def list_options_without_meaning(options: Mapping[str, str], *, writing: bool = False) -> list[str]:
    """Return the names among these options that have no meaning for a reader, or for a writer, sorted."""
    known = OF_WRITERS if writing else OF_READERS
    return sorted(known[name.lower()] for name in options if name.lower() in known)


def drop_ignored_options(options: Mapping[str, str], ignored: Iterable[str]) -> dict[str, str]:
    """Return the other options. Names may be in any case."""
    left_out = {name.lower() for name in ignored}
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def warn_of_ignored_options(ignored: Iterable[str]) -> None:
    """Log the names of such options, in one line."""
    names = ", ".join(ignored)
    if names:
        log.warning("ignored, as without meaning here: %s", names)
