"""The options of Spark's own Kafka source: what they mean, which win, and what is refused in one line."""

from __future__ import annotations

import json

import pytest

from minibroker.pipeline.log_source import OptionError, Table, TopicSelection
from minibroker.pipeline.options import NAMES, Position, Query, ReadOptions, list_allowed_options, parse_options
from tests.cases import for_each
from tests.pipeline.stand_in import partition

OF_A_DIRECTORY = {"path": "/data", "subscribe": "orders"}
OF_A_BROKER = {"kafka.bootstrap.servers": "h:1", "subscribe": "orders"}


def parsed(table: Table = "records", query: Query | None = "batch", **options: str) -> ReadOptions:
    """Options as Spark hands them over: with names in lower case."""
    return parse_options({name.lower(): value for name, value in (OF_A_DIRECTORY | options).items()}, table, query)


def refusal(table: Table = "records", query: Query | None = "batch", **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parsed(table, query, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_those_of_sparks_own_source() -> None:
    options = parsed()
    assert options == ReadOptions("records", TopicSelection(topics=("orders",)), path="/data")
    assert options.fail_on_data_loss and not options.include_headers
    assert (options.mode, options.isolation_level, options.no_match) == ("FAILFAST", "read_uncommitted", "error")


def test_option_names_are_case_insensitive() -> None:
    options = parse_options(
        {"PATH": "/data", "Subscribe": "a", "INCLUDEHEADERS": "TRUE", "mode": "permissive"}, "records"
    )
    assert (options.path, options.include_headers, options.mode) == ("/data", True, "PERMISSIVE")


def test_topics_are_given_by_name_pattern_or_partition() -> None:
    assert parsed(subscribe=" a, b ,,a").selection == TopicSelection(topics=("a", "b"))
    where = {"path": "/data"}
    assert parse_options(where | {"subscribepattern": " a.* "}, "records").selection == TopicSelection(pattern="a.*")
    assigned = parse_options(where | {"assign": '{"b": [1, 0], "a": [2]}'}, "records").selection.assigned
    assert assigned == (partition("a-2"), partition("b-0"), partition("b-1"))


def test_options_with_the_prefix_kafka_are_for_the_client() -> None:
    tls = {"kafka.security.protocol": "SSL", "kafka.isolation.level": "read_committed"}
    options = parse_options(OF_A_BROKER | tls, "records", "batch")
    assert options.bootstrap_servers == "h:1"
    assert options.client_settings == {"security.protocol": "SSL"}
    assert options.isolation_level == "read_committed"


@pytest.mark.parametrize(
    ("options", "starting"),
    [
        ({"startingOffsets": "Earliest"}, Position("offset", -2, None, "startingOffsets")),
        (
            {"startingOffsets": '{"a":{"0":5,"1":-2}}'},
            Position("offset", None, {partition("a-0"): 5, partition("a-1"): -2}, "startingOffsets"),
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "startingOffsets": "earliest"},
            Position("timestamp", None, {partition("a-0"): 5}, "startingOffsetsByTimestamp"),
        ),
        (
            {"startingTimestamp": "7", "startingOffsetsByTimestamp": '{"a":{"0":5}}', "startingOffsets": "earliest"},
            Position("timestamp", 7, None, "startingTimestamp"),
        ),
    ],
)
def test_global_timestamps_override_timestamps_per_partition_and_offsets(
    options: dict[str, str], starting: Position
) -> None:
    assert parsed(**options).starting == starting


def test_a_stream_may_start_at_the_latest_offset() -> None:
    assert parsed(query="stream", startingOffsets="latest").starting == Position("offset", -1, None, "startingOffsets")


def test_options_of_only_sparks_connector_are_ignored() -> None:
    options = parsed(**{"groupIdPrefix": "g", "fetchoffset.numretries": "3", "kafka.session.timeout.ms": "6000"})
    assert options.ignored == ("fetchOffset.numRetries", "groupIdPrefix", "kafka.session.timeout.ms")
    assert options.client_settings == {}


def test_stream_limits_are_parsed() -> None:
    limits = {"maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "2m"}
    options = parsed(query="stream", **limits)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (9, 3)
    assert options.max_trigger_delay_ms == 120_000


@for_each(
    ("options", "complaint"),
    [
        ({"subscribe": " , "}, "subscribe: it has no topic"),
        ({"assign": '{"a": [0]}'}, "subscribe and assign cannot both be given"),
        ({"kafka.bootstrap.servers": "h:1"}, "path and kafka.bootstrap.servers cannot both be given"),
        ({"path": " "}, "path: it is empty"),
        ({"kafka.security.protocol": "SSL"}, "kafka.security.protocol: only with kafka.bootstrap.servers"),
        ({"subscribes": "a"}, "unknown option subscribes; did you mean subscribe?"),
        ({"nonsense": "a"}, "unknown option nonsense; there are path, "),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger: not an option of a batch query of records"),
        ({"startingOffsets": "latest"}, "startingOffsets: it cannot be latest in a batch query"),
        ({"endingOffsets": "earliest"}, "endingOffsets: it cannot be earliest in a batch query"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets: a-0 cannot be latest (-1) in a batch query"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets: a-0 cannot be earliest (-2) in a batch query"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets: a-0 has -3, not a whole number from -2 on"),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "startingOffsets: a-0 has 1.5, not a whole number from -2 on"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets: a-0 has True, not a whole number from -2 on"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "startingOffsets: 'x' is not the number of a partition"),
        (
            {"startingOffsets": '{"a":{"4294967296":1}}'},
            "startingOffsets: '4294967296' is not the number of a partition",
        ),
        ({"startingOffsets": '{"a":[1]}'}, "startingOffsets: '{\"a\":[1]}' is not like {"),
        ({"startingOffsets": "soon"}, "startingOffsets: 'soon' is not like {"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets: '[["),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: 'yesterday' is not a whole number from 0 on"),
        ({"startingTimestamp": "-1"}, "startingTimestamp: '-1' is not a whole number from 0 on"),
        ({"startingTimestamp": "9" * 19}, "startingTimestamp: "),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy: 'guess' is none of"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss: 'no' is none of true, false"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not a whole number from 1 on"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition: 'x' is not a whole number from 1 on"),
        ({"isolation.level": "serializable"}, "isolation.level: 'serializable' is none of"),
        ({"mode": "lenient"}, "mode: 'lenient' is none of FAILFAST, PERMISSIVE, DROPMALFORMED"),
        ({"verify": "index"}, "verify: 'index' is none of none, crc"),
    ],
)
def test_invalid_options_are_rejected_by_name(options: dict[str, str], complaint: str) -> None:
    assert complaint in refusal(**options)


@pytest.mark.parametrize("without", ["path", "subscribe"])
def test_a_location_and_topics_are_required(without: str) -> None:
    options = {name: value for name, value in OF_A_DIRECTORY.items() if name != without}
    with pytest.raises(OptionError, match="exactly one of .*: none is given"):
        parse_options(options, "records")


def test_conflicting_isolation_levels_are_rejected() -> None:
    levels = {"isolation.level": "read_committed", "kafka.isolation.level": "read_uncommitted"}
    with pytest.raises(OptionError, match="isolation.level and kafka.isolation.level differ"):
        parse_options(OF_A_BROKER | levels, "records")


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_rejects_options_for_its_end(option: str) -> None:
    assert refusal(query="stream", **{option: "5"}) == f"{option}: not an option of a stream of records"


def test_the_minimum_per_batch_cannot_exceed_the_maximum() -> None:
    limits = {"maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "9"}
    assert refusal(query="stream", **limits) == "minOffsetsPerTrigger 9 is more than maxOffsetsPerTrigger 3"


@pytest.mark.parametrize("text", ["", "soon", "-1s", "1 year"])
def test_a_trigger_delay_that_is_no_duration_is_rejected(text: str) -> None:
    assert "is not a time like 500ms" in refusal(query="stream", maxTriggerDelay=text)


@pytest.mark.parametrize(
    ("text", "time_ms"), [("7", 7), ("7ms", 7), ("7 s", 7000), ("7min", 420_000), ("1d", 86_400_000)]
)
def test_delays_are_formatted_as_by_spark(text: str, time_ms: int) -> None:
    assert parsed(query="stream", maxTriggerDelay=text).max_trigger_delay_ms == time_ms


def test_the_batches_table_has_no_headers_option() -> None:
    assert refusal("batches", includeHeaders="true") == "includeHeaders: not an option of a batch query of batches"


def test_options_of_batches_and_streams_are_allowed_before_the_kind_of_query_is_known() -> None:
    options = {"endingOffsets": "latest", "maxOffsetsPerTrigger": "5"}
    assert parsed(query=None, **options).max_offsets_per_trigger == 5
    assert list_allowed_options("records") == NAMES


def test_a_starting_offset_may_have_64_bits() -> None:
    offsets = {"a": {"0": 2**63 - 1}}
    starting = parsed(startingOffsets=json.dumps(offsets)).starting
    assert starting is not None and starting.each == {partition("a-0"): 2**63 - 1}
