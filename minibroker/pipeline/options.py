"""The options of `spark.read` and `spark.readStream`: those of Spark's own Kafka source, and those for a directory.

They have the same meaning, defaults and limits as in Spark. Unknown options, and options without an effect on the
query, are refused by name; those that only Spark's own source needs are ignored (`foreign_options`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import minibroker.pipeline.option_values as values
from minibroker.pipeline.foreign_options import drop_ignored, list_meaningless
from minibroker.pipeline.log_source import Mode, OptionError, Table, TopicPartition
from minibroker.pipeline.option_values import Value
from minibroker.pipeline.selection import TopicSelection
from minibroker.suggestions import suggest_names

LATEST: Final = -1
EARLIEST: Final = -2
EDGES: Final = {"latest": LATEST, "earliest": EARLIEST}
KAFKA: Final = "kafka."
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
STREAM_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "commitOffsetsToGroup")
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
    commit_offsets_to_group: str | None = None
    ignored: tuple[str, ...] = ()


class Given:
    """Options from Spark, which has changed their names to lower case. They are looked up by their proper names."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def __getitem__(self, name: str) -> str:
        return self._options[name.lower()]

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def get(self, name: str, default: str) -> str:
        """Return the value of an option, or a default."""
        return self._options.get(name.lower(), default)

    def those_of(self, options: tuple[str, ...]) -> list[str]:
        """Return which of these options are given."""
        return [name for name in options if name in self]

    def only(self, options: tuple[str, ...]) -> str:
        """Return the one of these options that is given. Raises `OptionError` if none is, or several."""
        given = self.those_of(options)
        if len(given) != 1:
            what = f"{' and '.join(given)} cannot both be given" if given else "none is given"
            raise OptionError(f"exactly one of {', '.join(options)} is needed: {what}")
        return given[0]

    def unknown(self, allowed: tuple[str, ...]) -> list[str]:
        """Return the options that are not among these, except those of Kafka's client."""
        known = {name.lower() for name in allowed}
        return [name for name in self._options if name not in known and not name.startswith(KAFKA)]

    def client_settings(self) -> dict[str, str]:
        """Return the settings of Kafka's client, without `kafka.`."""
        ours = (SERVERS, KAFKA_ISOLATION)
        kafka = {name: value for name, value in self._options.items() if name.startswith(KAFKA) and name not in ours}
        return {name.removeprefix(KAFKA): value for name, value in kafka.items()}


def list_allowed_options(table: Table, query: Query | None = None) -> tuple[str, ...]:
    """Return the names of the options for a table, in a batch query or in a stream (None: in either)."""
    of_others = {"batch": STREAM_ONLY, "stream": ENDING, None: ()}[query]
    of_others += RECORDS_ONLY if table == "batches" else ()
    return tuple(name for name in NAMES if name not in of_others)


def parse_options(options: Mapping[str, str], table: Table, query: Query | None = None) -> ReadOptions:
    """Return the options of a reader, for a batch query or a stream (None: not known yet). Raises `OptionError`."""
    ignored = tuple(list_meaningless(options))
    given = Given(drop_ignored(options, ignored))
    _refuse_unknown(given, table, query)
    path, servers = _choose_path_or_servers(given)
    starting, ending = _parse_position(given, STARTING), _parse_position(given, ENDING)
    if query == "batch":
        _check_batch_edges(starting, ending)
    parsed = ReadOptions(
        table=table,
        selection=_parse_selection(given),
        path=path,
        bootstrap_servers=servers,
        client_settings=given.client_settings(),
        starting=starting,
        ending=ending,
        no_match=_parse_word(given, "startingOffsetsByTimestampStrategy", STRATEGIES),
        isolation_level=_parse_isolation_level(given),
        include_headers=_parse_switch(given, "includeHeaders", default=False),
        fail_on_data_loss=_parse_switch(given, "failOnDataLoss", default=True),
        min_partitions=_parse_optional_number(given, "minPartitions"),
        max_records_per_partition=_parse_optional_number(given, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_parse_optional_number(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_parse_optional_number(given, "minOffsetsPerTrigger"),
        max_trigger_delay_ms=values.parse_duration_ms("maxTriggerDelay", given.get("maxTriggerDelay", "15m")),
        mode=_parse_word(given, "mode", MODES),
        verify_crc=_parse_word(given, "verify", ("none", "crc")) == "crc",
        commit_offsets_to_group=_choose_group(given, servers),
        ignored=ignored,
    )
    _check_trigger(parsed)
    return parsed


def _refuse_unknown(given: Given, table: Table, query: Query | None) -> None:
    allowed = list_allowed_options(table, query)
    unknown = given.unknown(allowed)
    if unknown:
        names = {name.lower(): name for name in NAMES}
        elsewhere = [names[name] for name in unknown if name in names]
        if elsewhere:
            where = {"batch": "a batch query of ", "stream": "a stream of ", None: ""}[query]
            raise OptionError(f"{', '.join(elsewhere)}: not an option of {where}{table}")
        guess = suggest_names(unknown[0], allowed) or f"; there are {', '.join(allowed)}, and kafka.*"
        raise OptionError(f"unknown option {', '.join(unknown)}{guess}")


def _choose_path_or_servers(given: Given) -> tuple[str | None, str | None]:
    where = given.only(WHERE)
    text = given[where].strip()
    if not text:
        raise OptionError(f"{where}: it is empty")
    if where == "path":
        settings = given.client_settings()
        if settings:
            raise OptionError(f"{', '.join(f'{KAFKA}{name}' for name in settings)}: only with {SERVERS}")
        return text, None
    return None, text


def _parse_selection(given: Given) -> TopicSelection:
    which = given.only(WHICH)
    if which == "assign":
        return TopicSelection(assigned=values.parse_partitions(which, given[which]))
    if which == "subscribe":
        return TopicSelection(topics=values.parse_names(which, given[which]))
    pattern = given[which].strip()
    if not pattern:
        raise OptionError(f"{which}: it is empty")
    return TopicSelection(pattern=pattern)


def _parse_position(given: Given, options: tuple[str, ...]) -> Position | None:
    """Return the first given one of the options: a time for all, then times for each, then offsets."""
    name = next((option for option in options if option in given), None)
    if name is None:
        return None
    text = given[name].strip()
    if name.endswith("ByTimestamp"):
        return Position("timestamp", each=values.by_partition(name, text, 0, TIMES_EXAMPLE), option=name)
    if name.endswith("Timestamp"):
        return Position("timestamp", values.parse_number(name, text), option=name)
    if text.lower() in EDGES:
        return Position("offset", EDGES[text.lower()], option=name)
    return Position("offset", each=values.by_partition(name, text, EARLIEST, OFFSETS_EXAMPLE), option=name)


def _parse_isolation_level(given: Given) -> IsolationLevel:
    names = given.those_of(("isolation.level", KAFKA_ISOLATION))
    levels = {values.parse_one_of(name, given[name], ISOLATION_LEVELS) for name in names}
    if len(levels) > 1:
        raise OptionError(f"{' and '.join(names)} differ")
    return levels.pop() if levels else "read_uncommitted"


def _choose_group(given: Given, servers: str | None) -> str | None:
    name = "commitOffsetsToGroup"
    if name not in given:
        return None
    if servers is None:
        raise OptionError(f"{name}: only with {SERVERS}")
    if not given[name].strip():
        raise OptionError(f"{name}: it is empty")
    return given[name].strip()


def _parse_word(given: Given, name: str, allowed: Sequence[Value]) -> Value:
    """Return one of some words; the first one is the default."""
    return values.parse_one_of(name, given.get(name, allowed[0]), allowed)


def _parse_switch(given: Given, name: str, *, default: bool) -> bool:
    return values.parse_switch(name, given[name]) if name in given else default


def _parse_optional_number(given: Given, name: str) -> int | None:
    return values.parse_number(name, given[name], 1) if name in given else None


def _check_batch_edges(starting: Position | None, ending: Position | None) -> None:
    """Refuse ranges that cannot contain anything, as Spark's own source does."""
    for position, edge, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if position is not None and position.unit == "offset":
            _refuse_edge(position, edge, word)
    if starting is None or ending is None or starting.unit != ending.unit:
        return
    if starting.each is not None and ending.each is not None:
        if starting.each.keys() != ending.each.keys():
            raise OptionError(f"{starting.option} and {ending.option} name different partitions")
        for partition, start in starting.each.items():
            if 0 <= ending.each[partition] < start:
                raise OptionError(
                    f"{partition}: {starting.option} {start} is after {ending.option} {ending.each[partition]}"
                )
    elif (first := starting.everywhere) is not None and (last := ending.everywhere) is not None and 0 <= last < first:
        raise OptionError(f"{starting.option} {first} is after {ending.option} {last}")


def _refuse_edge(position: Position, edge: int, word: str) -> None:
    if position.everywhere == edge:
        raise OptionError(f"{position.option}: it cannot be {word} in a batch query")
    for partition, offset in (position.each or {}).items():
        if offset == edge:
            raise OptionError(f"{position.option}: {partition} cannot be {word} ({edge}) in a batch query")


def _check_trigger(options: ReadOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
