"""`minibroker groups reset-offsets`: its words, its arithmetic, and what it does to a group that nobody reads."""

from __future__ import annotations

import itertools
import json
import time
from datetime import UTC, datetime

import click
import pytest
from click.testing import Result

from minibroker.cli.groups.groups_reset import (
    ResetTarget,
    choose_reset_target,
    parse_datetime_ms,
)
from tests.cases import for_each
from tests.cli.conftest import Run
from tests.cli.group_members import member
from tests.clients.confluent import Confluent
from tests.running import RunningBroker

NUMBERS = itertools.count()

PLACE = ("orders", 1)
NOW_MS = 1_700_000_000_000
UNSET = {"to_earliest": False, "to_latest": False, "to_current": False, "to_offset": None, "shift_by": None}


@pytest.fixture(scope="module")
def topic(broker: RunningBroker) -> str:
    """Two partitions with ten records each; the timestamps of the first are 1000, 2000, ... ms."""
    from confluent_kafka import Producer

    with Confluent().admin(broker.bootstrap_servers) as admin:
        admin.create_topic("t", 2, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce("t", b"v", partition=0, timestamp=1000 * (number + 1))
        producer.produce("t", b"v", partition=1)
    assert producer.flush(30) == 0
    return "t"


@pytest.fixture
def group(run_client: Run, topic: str) -> str:
    """A group that has committed 4 for partition 0, and nothing else."""
    name = f"group-{next(NUMBERS)}"
    assert reset(run_client, name, "--topic", f"{topic}:0", "--to-offset", "4", "--execute").exit_code == 0
    return name


def reset(run_client: Run, group: str, *options: str) -> Result:
    return run_client("groups", "reset-offsets", group, *options)


def offsets(run_client: Run, group: str) -> dict[int, int | None]:
    found = json.loads(run_client("groups", "describe", group, "--json").stdout)
    return {line["partition"]: line["committed"] for line in found["offsets"]}


def test_offsets_are_reset_only_with_execute(run_client: Run, group: str, topic: str) -> None:
    shown = reset(run_client, group, "--topic", topic, "--to-earliest")
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["topic", "partition", "current", "new"]
    assert lines[2:4] == [["t", "0", "4", "0"], ["t", "1", "0"]]
    assert shown.stdout.endswith("\nnothing was changed; add --execute to do it\n")
    assert offsets(run_client, group) == {0: 4}
    done = reset(run_client, group, "--topic", topic, "--to-earliest", "--execute")
    assert done.stdout.endswith(f"\nthe offsets of {group} are reset\n")
    assert offsets(run_client, group) == {0: 0, 1: 0}


@pytest.mark.parametrize("executed", [True, False])
def test_reset_offsets_prints_json_on_request(run_client: Run, group: str, topic: str, executed: bool) -> None:
    options = ["--execute"] if executed else []
    shown = reset(run_client, group, "--all-topics", "--to-latest", "--json", *options)
    line = {"topic": topic, "partition": 0, "current": 4, "new": 10}
    assert json.loads(shown.stdout) == {"group": group, "executed": executed, "offsets": [line]}
    assert offsets(run_client, group) == {0: 10 if executed else 4}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-current"], [4, 10]),
        (["--to-offset", "7"], [7, 7]),
        (["--to-datetime", "1970-01-01T00:00:03.500"], [3, 0]),
        (["--to-datetime", "1970-01-01T00:01:00"], [10, 0]),
        (["--by-duration", "P1D"], [10, 0]),
        (["--by-duration", "1 day"], [10, 0]),
        (["--by-duration", "P99999D"], [0, 0]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_each_reset_option_commits_the_offset_it_describes(
    run_client: Run, group: str, topic: str, options: list[str], expected: list[int]
) -> None:
    assert reset(run_client, group, "--topic", topic, *options, "--execute").exit_code == 0
    assert offsets(run_client, group) == dict(enumerate(expected))


@pytest.mark.parametrize(("shift", "expected"), [("3", 7), ("-3", 1)])
def test_committed_offsets_can_be_shifted(run_client: Run, group: str, shift: str, expected: int) -> None:
    assert reset(run_client, group, "--all-topics", "--shift-by", shift, "--execute").exit_code == 0
    assert offsets(run_client, group) == {0: expected}


@pytest.mark.parametrize(
    ("options", "new", "complaint"),
    [
        (["--to-offset", "11"], 10, "11 is past the last record, so it is 10"),
        (["--shift-by", "-5"], 0, "-1 is before the first record, so it is 0"),
    ],
)
def test_an_offset_beyond_the_log_is_moved_to_its_end(
    run_client: Run, group: str, options: list[str], new: int, complaint: str
) -> None:
    result = reset(run_client, group, "--all-topics", *options, "--execute")
    assert (result.exit_code, result.stderr) == (0, f"minibroker: t-0: {complaint}\n")
    assert offsets(run_client, group) == {0: new}


def test_a_group_with_members_is_not_reset(run_client: Run, broker: RunningBroker, topic: str) -> None:
    with member(broker.bootstrap_servers, "busy", topic, 1):
        result = reset(run_client, "busy", "--all-topics", "--to-earliest", "--execute")
    complaint = "the offsets of busy can only be reset while it has no members, and it is Stable"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"minibroker: {complaint}\n")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--topic", "t:0,7", "--to-latest"], "t has no partition 7, only 0 to 1"),
        (["--topic", "missing", "--to-latest"], "there is no topic missing"),
        (["--topic", "t", "--shift-by", "1"], "cannot shift t-1: nothing is committed for it"),
    ],
)
def test_an_impossible_reset_is_reported_in_one_line_with_status_1(
    run_client: Run, group: str, options: list[str], complaint: str
) -> None:
    result = reset(run_client, group, *options, "--execute")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"minibroker: {complaint}\n")
    assert offsets(run_client, group) == {0: 4}


def test_resetting_a_group_without_commits_requires_topics(run_client: Run, topic: str) -> None:
    result = reset(run_client, "nobody", "--all-topics", "--to-earliest")
    complaint = "nobody has no offsets: choose topics with --topic"
    assert (result.exit_code, result.stderr) == (1, f"minibroker: {complaint}\n")


@for_each(
    ("options", "complaint"),
    [
        (["--to-latest"], "choose partitions with --topic or --all-topics"),
        (["--topic", "t", "--all-topics", "--to-latest"], "choose partitions with --topic or --all-topics"),
        (["--topic", "t"], "choose one of "),
        (["--topic", "t", "--to-latest", "--to-offset", "0"], "choose one of "),
        (["--topic", "t:x", "--to-latest"], "--topic: "),
        (["--topic", "t", "--to-offset", "-1"], "--to-offset: "),
        (["--topic", "t", "--to-datetime", "noon"], "--to-datetime: "),
        (["--topic", "t", "--by-duration", "an hour"], "--by-duration: "),
    ],
)
def test_invalid_arguments_of_reset_offsets_are_reported_in_one_line_with_status_2(
    run: Run, options: list[str], complaint: str
) -> None:
    result = reset(run, "any", *options)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    assert result.stderr.startswith(f"minibroker: {complaint}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-31T12:00:00", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00.5+01:00", datetime(2026, 1, 31, 11, 0, 0, 500_000, tzinfo=UTC)),
    ],
)
def test_the_time_of_a_reset_is_utc_by_default(text: str, expected: datetime) -> None:
    assert parse_datetime_ms(text) == round(expected.timestamp() * 1000)


def test_the_time_of_a_reset_can_be_relative_to_now() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert 0 <= parse_datetime_ms("2 hours ago") - (now_ms - 7_200_000) <= 60_000
    assert parse_datetime_ms("@1700000000000") == NOW_MS


@pytest.mark.parametrize("text", ["", "noon", "2026-13-01"])
def test_an_invalid_time_is_rejected(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no time like"):
        parse_datetime_ms(text)


def test_exactly_one_reset_option_is_required() -> None:
    assert choose_reset_target({**UNSET, "to_latest": True}) == ResetTarget("to_latest", 1)
    assert choose_reset_target({**UNSET, "to_offset": 0}) == ResetTarget("to_offset", 0)
    for wrong in (UNSET, {**UNSET, "to_offset": 0, "shift_by": -1}):
        with pytest.raises(click.UsageError, match="choose one of --to-earliest, .*--shift-by"):
            choose_reset_target(wrong)


@for_each(
    ("target", "current", "at_time", "expected"),
    [
        (ResetTarget("to_earliest"), 7, None, 2),
        (ResetTarget("to_latest"), 7, None, 10),
        (ResetTarget("to_current"), 7, None, 7),
        (ResetTarget("to_current"), None, None, 10),
        (ResetTarget("to_offset", 5), 7, None, 5),
        (ResetTarget("shift_by", -3), 7, None, 4),
        (ResetTarget("shift_by", 3), 7, None, 10),
        (ResetTarget("to_datetime", NOW_MS), 7, 6, 6),
        (ResetTarget("to_datetime", NOW_MS), 7, -1, 10),
        (ResetTarget("by_duration", 1), None, 6, 6),
    ],
)
def test_a_reset_target_determines_the_new_offset(
    target: ResetTarget, current: int | None, at_time: int | None, expected: int
) -> None:
    assert target.choose_offset(PLACE, current, 2, 10, at_time) == expected


def test_an_offset_that_was_not_committed_cannot_be_shifted() -> None:
    with pytest.raises(click.ClickException, match="cannot shift orders-1: nothing is committed for it"):
        ResetTarget("shift_by", 3).choose_offset(PLACE, None, 2, 10, None)


def test_only_resets_to_times_and_durations_require_the_current_time() -> None:
    assert ResetTarget("to_datetime", 5).get_timestamp_ms(NOW_MS) == 5
    assert ResetTarget("to_datetime", -5).get_timestamp_ms(NOW_MS) == 0
    assert ResetTarget("by_duration", 5).get_timestamp_ms(NOW_MS) == NOW_MS - 5
    assert ResetTarget("by_duration", 2 * NOW_MS).get_timestamp_ms(NOW_MS) == 0
    assert ResetTarget("to_offset", 5).get_timestamp_ms(NOW_MS) is None
