"""The options of `spark.read` and `spark.readStream`: those of Spark's own Kafka source, and those for a directory.

They have the same meaning, defaults and limits as in Spark. Unknown options, and options without an effect on the
query, are refused by name. Options of Spark's own Kafka source and settings of Kafka's client that have no meaning here
are accepted, and one warning names them: so jobs for Spark's connector run unchanged. All functions raise `OptionError`
with one line that begins with the option. `sink/sink_settings` lists the options of writers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar

from minibroker.pipeline.log_source import Mode, OptionError, Table, TopicPartition, TopicSelection
from minibroker.quantities import parse_milliseconds
from minibroker.suggestions import format_suggestion_of_similar_name

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
        """Return the options that no other method was asked for."""
        return {name: value for name, value in self._options.items() if name not in self.known}

    def get_text(self, name: str) -> str | None:
        """Return the value of an option without spaces around it; None if it is not given."""
        self.known.add(name.lower())
        text = self._options.get(name.lower())
        return None if text is None else text.strip()

    def get_word(self, name: str, allowed: Sequence[Value]) -> Value:
        """Return an option's value, which must be one of the allowed words; the first of them by default."""
        text = self.get_text(name)
        return allowed[0] if text is None else parse_one_of(self._prefix + name, text, allowed)

    def get_switch(self, name: str, default: bool) -> bool:
        """Return whether an option is true."""
        text = self.get_text(name)
        return default if text is None else parse_one_of(self._prefix + name, text, ("true", "false")) == "true"

    def get_number(self, name: str, default: Default, least: int = 0) -> int | Default:
        """Return an option's value, a whole number from `least` on, or the default."""
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
    """Return the allowed word that an option's text is, in any case. Raises `OptionError`."""
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
# Spark's connector polls in a consumer group, and retries by itself; its client is Java's. A task waits for no records.
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
    "fetch.max.wait.ms",
    "fetch.min.bytes",
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
# A task sends its rows when there are enough of them, or no more.
PRODUCER: Final = (
    "linger.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "client.rack",
)
OF_READERS: Final = {name.lower(): name for name in (*OPTIONS, *(f"{KAFKA}{name}" for name in (*GROUP, *CLIENT)))}
OF_WRITERS: Final = {f"{KAFKA}{name}": f"{KAFKA}{name}" for name in (*PRODUCER, *CLIENT)}


def list_options_without_meaning(options: Mapping[str, str], *, writing: bool = False) -> list[str]:
    """Return the names among these options that have no meaning for a reader, or for a writer, sorted."""
    known = OF_WRITERS if writing else OF_READERS
    return sorted(known[name.lower()] for name in options if name.lower() in known)


def drop_ignored_options(options: Mapping[str, str], ignored: Iterable[str]) -> dict[str, str]:
    """Return the options that are not ignored. Names may be in any case."""
    left_out = {name.lower() for name in ignored}
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def warn_of_ignored_options(ignored: Iterable[str]) -> None:
    """Log a warning with the names of options that are ignored, in one line."""
    names = ", ".join(ignored)
    if names:
        log.warning("ignored, as without meaning here: %s", names)


LATEST: Final = -1
EARLIEST: Final = -2
EDGES: Final = {"latest": LATEST, "earliest": EARLIEST}
SERVERS: Final = "kafka.bootstrap.servers"
KAFKA_ISOLATION: Final = "kafka.isolation.level"
DEFAULT_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
MODES: Final[tuple[Mode, ...]] = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")
OFFSETS_EXAMPLE: Final = '{"orders": {"0": 23, "1": -2}}, with -2 for earliest and -1 for latest'
TIMES_EXAMPLE: Final = '{"orders": {"0": 1700000000000}}, in milliseconds'

IsolationLevel = Literal["read_uncommitted", "read_committed"]
Strategy = Literal["error", "latest"]
Query = Literal["batch", "stream"]
ISOLATION_LEVELS: Final[tuple[IsolationLevel, ...]] = ("read_uncommitted", "read_committed")
STRATEGIES: Final[tuple[Strategy, ...]] = ("error", "latest")

WHERE: Final = ("path", SERVERS)
WHICH: Final = ("subscribe", "subscribePattern", "assign")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
RECORDS_ONLY: Final = ("includeHeaders",)
EVERYWHERE: Final = (
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "isolation.level",
    "mode",
    "verify",
)
NAMES: Final = (*WHERE, *WHICH, *STARTING, *ENDING, *EVERYWHERE, *STREAM_ONLY, *RECORDS_ONLY)


class Position(NamedTuple):
    """Where reading begins or ends, for all partitions or each: an offset (-1 latest, -2 earliest) or a time (ms)."""

    unit: Literal["offset", "timestamp"]
    everywhere: int | None = None
    each: Mapping[TopicPartition, int] | None = None
    option: str = ""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a reader. `starting` and `ending` are None if not given."""

    table: Table
    selection: TopicSelection
    path: str | None = None
    bootstrap_servers: str | None = None
    client_settings: Mapping[str, str] = field(default_factory=dict)
    starting: Position | None = None
    ending: Position | None = None
    no_match: Strategy = "error"
    isolation_level: IsolationLevel = "read_uncommitted"
    include_headers: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = DEFAULT_MAX_TRIGGER_DELAY_MS
    mode: Mode = "FAILFAST"
    verify_crc: bool = False
    ignored: tuple[str, ...] = ()


def list_allowed_options(table: Table, query: Query | None = None) -> tuple[str, ...]:
    """Return the names of the options for a table, in a batch query or in a stream (None: in either)."""
    of_others = {"batch": STREAM_ONLY, "stream": ENDING, None: ()}[query]
    of_others += RECORDS_ONLY if table == "batches" else ()
    return tuple(name for name in NAMES if name not in of_others)


def parse_options(options: Mapping[str, str], table: Table, query: Query | None = None) -> ReadOptions:
    """Return the options of a reader, for a batch query or a stream (None: not known yet). Raises `OptionError`."""
    ignored = tuple(list_options_without_meaning(options))
    given = GivenOptions(drop_ignored_options(options, ignored))
    _refuse_unknown_options(given, table, query)
    path, servers = _choose_path_or_servers(given)
    starting, ending = _parse_position(given, STARTING), _parse_position(given, ENDING)
    if query == "batch":
        _check_batch_edges(starting, ending)
    parsed = ReadOptions(
        table=table,
        selection=_parse_selection(given),
        path=path,
        bootstrap_servers=servers,
        client_settings=_get_client_settings(given),
        starting=starting,
        ending=ending,
        no_match=given.get_word("startingOffsetsByTimestampStrategy", STRATEGIES),
        isolation_level=_parse_isolation_level(given),
        include_headers=given.get_switch("includeHeaders", False),
        fail_on_data_loss=given.get_switch("failOnDataLoss", True),
        min_partitions=given.get_number("minPartitions", None, 1),
        max_records_per_partition=given.get_number("maxRecordsPerPartition", None, 1),
        max_offsets_per_trigger=given.get_number("maxOffsetsPerTrigger", None, 1),
        min_offsets_per_trigger=given.get_number("minOffsetsPerTrigger", None, 1),
        max_trigger_delay_ms=_parse_trigger_delay(given),
        mode=given.get_word("mode", MODES),
        verify_crc=given.get_word("verify", ("none", "crc")) == "crc",
        ignored=ignored,
    )
    _check_trigger(parsed)
    return parsed


def _list_given_options(given_options: GivenOptions, options: tuple[str, ...]) -> list[str]:
    return [name for name in options if name in given_options]


def _get_only_given_option(given_options: GivenOptions, options: tuple[str, ...]) -> tuple[str, str]:
    """Return the one of these options that is given, and its value. Raises `OptionError` if none is, or several."""
    names = _list_given_options(given_options, options)
    if len(names) != 1:
        what = f"{' and '.join(names)} cannot both be given" if names else "none is given"
        raise OptionError(f"exactly one of {', '.join(options)} is needed: {what}")
    text = given_options.get_text(names[0])
    if not text:
        raise OptionError(f"{names[0]}: it is empty")
    return names[0], text


def _get_client_settings(given_options: GivenOptions) -> dict[str, str]:
    """Return the settings of Kafka's client, without `kafka.`."""
    kafka = {name: text for name, text in given_options.get_remaining_options().items() if name.startswith(KAFKA)}
    return {name.removeprefix(KAFKA): text for name, text in kafka.items() if name not in (SERVERS, KAFKA_ISOLATION)}


def _refuse_unknown_options(given_options: GivenOptions, table: Table, query: Query | None) -> None:
    allowed = list_allowed_options(table, query)
    known = {name.lower() for name in allowed}
    unknown = [
        name for name in given_options.get_remaining_options() if name not in known and not name.startswith(KAFKA)
    ]
    if unknown:
        names = {name.lower(): name for name in NAMES}
        elsewhere = [names[name] for name in unknown if name in names]
        if elsewhere:
            where = {"batch": "a batch query of ", "stream": "a stream of ", None: ""}[query]
            raise OptionError(f"{', '.join(elsewhere)}: not an option of {where}{table}")
        guess = (
            format_suggestion_of_similar_name(unknown[0], allowed) or f"; there are {', '.join(allowed)}, and kafka.*"
        )
        raise OptionError(f"unknown option {', '.join(unknown)}{guess}")


def _choose_path_or_servers(given_options: GivenOptions) -> tuple[str | None, str | None]:
    """Return the path and the servers, one of which is None. Raises `OptionError`."""
    where, text = _get_only_given_option(given_options, WHERE)
    if where == "path":
        settings = _get_client_settings(given_options)
        if settings:
            raise OptionError(f"{', '.join(f'{KAFKA}{name}' for name in settings)}: only with {SERVERS}")
        return text, None
    return None, text


def _parse_selection(given_options: GivenOptions) -> TopicSelection:
    which, text = _get_only_given_option(given_options, WHICH)
    if which == "assign":
        return TopicSelection(assigned=parse_partitions(which, text))
    if which == "subscribe":
        return TopicSelection(topics=parse_names(which, text))
    return TopicSelection(pattern=text)


def _parse_position(given_options: GivenOptions, options: tuple[str, ...]) -> Position | None:
    """Return the position that the first given one of the options has, or None if none is given."""
    name = next(iter(_list_given_options(given_options, options)), None)
    if name is None:
        return None
    text = given_options.get_text(name) or ""
    if name.endswith("ByTimestamp"):
        return Position("timestamp", each=parse_numbers_by_partition(name, text, 0, TIMES_EXAMPLE), option=name)
    if name.endswith("Timestamp"):
        return Position("timestamp", parse_number(name, text), option=name)
    if text.lower() in EDGES:
        return Position("offset", EDGES[text.lower()], option=name)
    return Position("offset", each=parse_numbers_by_partition(name, text, EARLIEST, OFFSETS_EXAMPLE), option=name)


def _parse_isolation_level(given_options: GivenOptions) -> IsolationLevel:
    names = _list_given_options(given_options, ("isolation.level", KAFKA_ISOLATION))
    levels = {given_options.get_word(name, ISOLATION_LEVELS) for name in names}
    if len(levels) > 1:
        raise OptionError(f"{' and '.join(names)} differ")
    return levels.pop() if levels else "read_uncommitted"


def _parse_trigger_delay(given_options: GivenOptions) -> int:
    """Return `maxTriggerDelay` in ms, or its default."""
    text = given_options.get_text("maxTriggerDelay")
    return DEFAULT_MAX_TRIGGER_DELAY_MS if text is None else parse_duration_ms("maxTriggerDelay", text)


def _check_batch_edges(starting: Position | None, ending: Position | None) -> None:
    """Raise `OptionError` for a start at the end, or an end at the beginning, as Spark's own source does."""
    for position, edge, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if position is not None and position.unit == "offset":
            _refuse_default_position(position, edge, word)


def _refuse_default_position(position: Position, default_offset: int, word: str) -> None:
    """Raise `OptionError` if a partition has `default_offset`, called `word`, which a batch query cannot have."""
    if position.everywhere == default_offset:
        raise OptionError(f"{position.option}: it cannot be {word} in a batch query")
    for partition, offset in (position.each or {}).items():
        if offset == default_offset:
            raise OptionError(f"{position.option}: {partition} cannot be {word} ({default_offset}) in a batch query")


def _check_trigger(options: ReadOptions) -> None:
    """Raise `OptionError` if `minOffsetsPerTrigger` is larger than `maxOffsetsPerTrigger`."""
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
