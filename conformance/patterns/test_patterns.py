"""Patterns of topics against the library that Apache Kafka's brokers match them with: thousands of random ones.

Java answers all questions in one run, from the jars of Apache Kafka 4.4.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from conformance.kafka_reference import kafka_command
from minibroker.patterns.program import Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.protocol.steps import run_all_steps

PROGRAM = Path(__file__).parent / "Matches.java"
COUNT = 20_000
PIECES = [
    *("a", "b", "A", "-", "_", "0", "7", ".", "é", " ", "\\.", "\\-", "\\_", "\\a", "\\x61", "\\x{62}", "\\101", "\\0"),
    *("(", ")", "(?:", "(?i)", "(?i:", "(?s)", "(?-i)", "(?m)", "(?U)", "(?P<n>", "(?<m>", "(?=", "(?i-s:", "|", "|"),
    *("*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,}", "{,3}", "{3,1}", "{1001}", "{", "}", "**", "{0}"),
    *(
        "[ab]",
        "[^a]",
        "[a-c]",
        "[c-a]",
        "[-a]",
        "[a-]",
        "[]a]",
        "[^]]",
        "[\\d-]",
        "[\\w.]",
        "[[:alpha:]]",
        "[[:^word:]]",
    ),
    *("[[:no:]]", "[a", "]", "[\\Da]", "[\\pL]", "[^\\PL]", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "\\pL", "\\PN"),
    *("\\p{Lu}", "\\p{^Ll}", "\\P{Greek}", "\\p{Latin}", "\\p{Nope}", "^", "$", "\\A", "\\z", "\\Z", "\\b", "\\B"),
    *("\\Q", "\\E", "\\Qa.b\\E", "\\C", "\\1", "\\8", "\\", "\\x", "\\xg", "\\y", "(?", "(?P<", "(?#"),
]
NAMES = [
    "a",
    "b",
    "A",
    "ab",
    "aB",
    "a-b",
    "a.b",
    "a_b",
    "0",
    "a0",
    "77",
    "aaa",
    "-",
    "_",
    ".",
    "a.",
    "{2}",
    "abab",
    "-a",
    "a{,3}",
]


def questions() -> list[tuple[str, list[str]]]:
    source = random.Random(11)
    texts = ["".join(source.choices(PIECES, k=source.randint(1, 6))) for _ in range(COUNT)]
    return [(text, NAMES) for text in dict.fromkeys(texts)]


def ours(text: str, names: list[str]) -> list[str] | None:
    try:
        matching = run_all_steps(Pattern(text).select_matching_names(names))
    except InvalidPattern:
        return None
    return [name for name in names if name in matching]


def test_patterns_are_accepted_and_match_as_in_kafka() -> None:
    asked = questions()
    command = kafka_command(str(PROGRAM))
    run = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    theirs = json.loads(run.stdout)
    differing = [
        (text, found, expected)
        for (text, names), expected in zip(asked, theirs, strict=True)
        if (found := ours(text, names)) != expected
    ]
    assert differing == []
    assert sum(each is not None for each in theirs) > COUNT / 5
