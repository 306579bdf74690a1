"""The options of `spark.read` and `spark.readStream`: those of Spark's own Kafka source, and those for a directory.

They have the same meaning, defaults and limits as in Spark. Unknown options, and options without an effect on the
query, are refused by name; those that only Spark's own source needs are ignored (`option_values`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import minibroker.pipeline.option_values as values
from minibroker.pipeline.log_source import Mode, OptionError, Table, TopicPartition
from minibroker.pipeline.option_values import GivenOptions, drop_ignored_options, list_options_without_meaning
from minibroker.pipeline.selection import TopicSelection
from minibroker.suggestions import format_suggestion_of_similar_name

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
        return TopicSelection(assigned=values.parse_partitions(which, text))
    if which == "subscribe":
        return TopicSelection(topics=values.parse_names(which, text))
    return TopicSelection(pattern=text)


def _parse_position(given_options: GivenOptions, options: tuple[str, ...]) -> Position | None:
    """Return the first given one of the options: a time for all, then times for each, then offsets."""
    name = next(iter(_list_given_options(given_options, options)), None)
    if name is None:
        return None
    text = given_options.get_text(name) or ""
    if name.endswith("ByTimestamp"):
        return Position("timestamp", each=values.parse_numbers_by_partition(name, text, 0, TIMES_EXAMPLE), option=name)
    if name.endswith("Timestamp"):
        return Position("timestamp", values.parse_number(name, text), option=name)
    if text.lower() in EDGES:
        return Position("offset", EDGES[text.lower()], option=name)
    return Position(
        "offset", each=values.parse_numbers_by_partition(name, text, EARLIEST, OFFSETS_EXAMPLE), option=name
    )


def _parse_isolation_level(given_options: GivenOptions) -> IsolationLevel:
    names = _list_given_options(given_options, ("isolation.level", KAFKA_ISOLATION))
    levels = {given_options.get_word(name, ISOLATION_LEVELS) for name in names}
    if len(levels) > 1:
        raise OptionError(f"{' and '.join(names)} differ")
    return levels.pop() if levels else "read_uncommitted"


def _parse_trigger_delay(given_options: GivenOptions) -> int:
    text = given_options.get_text("maxTriggerDelay")
    return DEFAULT_MAX_TRIGGER_DELAY_MS if text is None else values.parse_duration_ms("maxTriggerDelay", text)


def _check_batch_edges(starting: Position | None, ending: Position | None) -> None:
    """Refuse ranges from the end, or to the beginning, as Spark's own source does. Planning refuses those behind."""
    for position, edge, word in ((starting, LATEST, "latest"), (ending, EARLIEST, "earliest")):
        if position is not None and position.unit == "offset":
            _refuse_default_position(position, edge, word)


def _refuse_default_position(position: Position, default_offset: int, word: str) -> None:
    if position.everywhere == default_offset:
        raise OptionError(f"{position.option}: it cannot be {word} in a batch query")
    for partition, offset in (position.each or {}).items():
        if offset == default_offset:
            raise OptionError(f"{position.option}: {partition} cannot be {word} ({default_offset}) in a batch query")


def _check_trigger(options: ReadOptions) -> None:
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}")
