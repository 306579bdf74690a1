"""The words of faults: what they may be, and the one line that is said of those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.testing.faults.file import rules_in
from minibroker.testing.faults.rules import FaultError, rule_from, rule_of


def test_words_make_a_rule() -> None:
    rule = rule_of(
        api=["produce", "Fetch"], version="3-9", topic="t", error="not_leader_or_follower", delay="1 s", once=True
    )
    assert rule.api == {ApiKey.PRODUCE, ApiKey.FETCH}
    assert (rule.versions, rule.error, rule.delay_ms) == (range(3, 10), ErrorCode.NOT_LEADER_OR_FOLLOWER, 1000)
    assert rule.times == 1
    assert str(rule) == (
        "api Fetch|Produce, versions 3-9, topic t, error NOT_LEADER_OR_FOLLOWER, delay_ms 1000.0, times 1"
    )
    assert str(rule_of(close="after", name="cut")) == "cut"


@pytest.mark.parametrize(
    ("version", "versions"), [(9, range(9, 10)), ("3-4", range(3, 5)), ("12+", range(12, 1 << 15))]
)
def test_versions(version: int | str, versions: range) -> None:
    assert rule_of(version=version, close="before").versions == versions


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "needs one of error"),
        ({"error": "NO_SUCH"}, "'NO_SUCH' is no error of Kafka's"),
        ({"error": "NONE", "close": "before"}, "both error and close"),
        ({"api": "Produced", "close": "before"}, "'Produced' is no API"),
        ({"api": [7], "close": "before"}, "7 is no API"),
        ({"version": "x", "close": "before"}, "'x' is no version"),
        ({"close": "sometime"}, "close is one of before, after"),
        ({"close": None, "answer": "loud"}, "answer is one of half"),
        ({"corrupt": "crc", "api": "Produce"}, "only a Fetch"),
        ({"close": "before", "nth": 0}, "nth begins with 1"),
        ({"close": "before", "times": -1}, "times begins with 1"),
        ({"close": "before", "probability": 2}, "between 0 and 1"),
        ({"close": "before", "once": True, "times": 2}, "give one of them"),
        ({"delay": "soon"}, "delay: 'soon' is no duration"),
        ({"close": "before", "level": "top"}, "level says where an error stands"),
        ({"close": "before", "when": "after"}, "when is for error and silence"),
        ({"delay": 5, "when": "after"}, "when is for error and silence"),
        ({"close": "before", "level": "record"}, "level is one of top"),
    ],
)
def test_what_cannot_be_is_said(words: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said):
        rule_of(**words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("close", "a mapping"),
        ({"topics": "t"}, "has no 'topics'; it has answer, api"),
        ({"topic": 5}, "topic cannot be 5"),
        ({"partition": True, "close": "before"}, "partition cannot be True"),
        ({"once": 1, "close": "before"}, "once cannot be 1"),
        ({"where": "x"}, "has no 'where'"),
    ],
)
def test_what_cannot_be_in_a_file_is_said(words: Any, said: str) -> None:
    with pytest.raises(FaultError, match=said):
        rule_from(words)


def test_a_file_holds_a_list_of_them(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        "- {api: Fetch, corrupt: crc, once: true}\n- api: [Produce]\n  error: REQUEST_TIMED_OUT\n  when: after\n"
    )
    first, second = rules_in(path)
    assert (first.corrupt, second.when) == ("crc", "after")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("close: before", "faults.yaml: a list of faults"),
        ("- close: before\n- close: now", "faults.yaml: fault 2: close is one of"),
        ("- [", "faults.yaml: while parsing"),
        ("- " + "x" * (1 << 20), "larger than 1048576 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(content)
    with pytest.raises(FaultError, match=said) as raised:
        rules_in(path)
    assert "\n" not in str(raised.value)
