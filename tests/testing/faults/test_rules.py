"""The words of faults: what they may be, and the one line that is said of those that cannot be."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.testing.faults.rules import WORDS, FaultError, Rule, load_rules, parse_rule


def test_a_fault_rule_is_made_from_python_arguments() -> None:
    rule = Rule(
        api=["produce", "Fetch"], version="3-9", topic="t", error="not_leader_or_follower", delay="1 s", once=True
    )
    assert rule.api_keys == {ApiKey.PRODUCE, ApiKey.FETCH}
    assert (rule.versions, rule.code, rule.delay_ms) == (range(3, 10), ErrorCode.NOT_LEADER_OR_FOLLOWER, 1000)
    assert rule.maximum_hits == 1
    assert str(rule) == ("api produce|Fetch, version 3-9, topic t, error not_leader_or_follower, delay 1 s, once True")
    assert str(Rule(close="after", name="cut")) == "cut"


def test_random_faults_use_a_reproducible_seed() -> None:
    rule = Rule(close="before", probability=0.5)
    assert rule.seed is not None and str(rule) == f"close before, probability 0.5, seed {rule.seed}"
    assert Rule(close="before").seed is None


def test_every_fault_argument_has_types_and_a_description() -> None:
    assert [word for word, (kinds, declared) in WORDS.items() if not kinds or not declared.meaning.endswith(".")] == []
    assert WORDS["delay"][0] == (str, float, timedelta) and WORDS["nth"][1].minimum == 1


@pytest.mark.parametrize(
    ("version", "versions"), [(9, range(9, 10)), ("3-4", range(3, 5)), ("12+", range(12, 1 << 15))]
)
def test_fault_versions_are_parsed(version: int | str, versions: range) -> None:
    assert Rule(version=version, close="before").versions == versions


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "needs one of error"),
        ({"error": "NO_SUCH"}, "'NO_SUCH' is not an error of Kafka"),
        ({"error": "NONE", "close": "before"}, "both error and close"),
        ({"api": "Produced", "close": "before"}, "'Produced' is not an API"),
        ({"api": [7], "close": "before"}, "7 is not an API"),
        ({"api": 7, "close": "before"}, "api cannot be 7"),
        ({"version": "x", "close": "before"}, "'x' is not a version"),
        ({"close": "sometime"}, "close is one of before, after"),
        ({"close": None, "answer": "loud"}, "answer is one of half"),
        ({"corrupt": "crc", "api": "Produce"}, "only Fetch and ShareFetch"),
        ({"close": "before", "nth": 0}, "nth is at least 1, and cannot be 0"),
        ({"close": "before", "times": -1}, "times is at least 1"),
        ({"close": "before", "probability": 2}, "between 0 and 1"),
        ({"close": "before", "probability": float("nan")}, "between 0 and 1"),
        ({"close": "before", "partition": -1}, "partition is at least 0"),
        ({"close": "before", "once": True, "times": 2}, "give one of them"),
        ({"delay": "soon"}, "delay: 'soon' is no duration"),
        ({"close": "before", "level": "top"}, "level says where an error is"),
        ({"close": "before", "when": "after"}, "when is for error and silence"),
        ({"delay": 5, "when": "after"}, "when is for error and silence"),
        ({"close": "before", "level": "record"}, "level is one of top"),
        ({"authentication": "forget"}, "authentication is one of refuse"),
        ({"authentication": "refuse", "error": "NONE"}, "both error and authentication"),
        ({"authentication": "refuse", "api": "SaslAuthenticate"}, "about logins, and api about requests"),
        ({"authentication": "refuse", "throttle": 5}, "about logins, and throttle about requests"),
        ({"authentication": "refuse", "session": 5}, "session is for authentication expire"),
        ({"close": "before", "session": 5}, "session is for authentication expire"),
        ({"authentication": "slow"}, "slow needs delay"),
        ({"authentication": "wrong-mechanism", "user": "a"}, "has no user: the user is not known yet"),
        ({"authentication": "wrong-mechanism", "delay": 5}, "has no delay"),
    ],
)
def test_an_invalid_fault_rule_is_an_error(words: dict[str, Any], said: str) -> None:
    with pytest.raises(FaultError, match=said):
        Rule(**words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("close", "a mapping"),
        ({"topics": "t"}, "has no 'topics'; it has answer, api"),
        ({"topic": 5}, "topic cannot be 5"),
        ({"partition": True, "close": "before"}, "partition cannot be True"),
        ({"once": 1, "close": "before"}, "once cannot be 1"),
        ({"where": "x"}, "has no 'where'"),
        ({"topic": None, "close": "before"}, "topic cannot be null"),
    ],
)
def test_an_invalid_fault_rule_in_a_file_is_an_error(words: Any, said: str) -> None:
    with pytest.raises(FaultError, match=said):
        parse_rule(words)


def test_a_list_of_fault_rules_is_read_from_a_yaml_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(
        "- {api: Fetch, corrupt: crc, once: true}\n- api: [Produce]\n  error: REQUEST_TIMED_OUT\n  when: after\n"
    )
    first, second = load_rules(path)
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
def test_an_invalid_file_of_faults_is_reported_in_one_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text(content)
    with pytest.raises(FaultError, match=said) as raised:
        load_rules(path)
    assert "\n" not in str(raised.value)
