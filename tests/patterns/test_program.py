"""Names that patterns match: beside Python's own `re` where both read the same, and in linear time."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.patterns.program import MAXIMUM_EFFORT, Pattern
from minibroker.patterns.syntax import InvalidPattern
from minibroker.protocol.steps import run_all_steps
from tests.cases import for_each

LONGEST_NAME = 249

LEAVES = st.sampled_from(
    [
        "a",
        "b",
        "-",
        "_",
        "0",
        ".",
        r"\.",
        r"\d",
        r"\w",
        r"\W",
        r"\D",
        "[ab]",
        "[^a]",
        "[a-c0-9]",
        r"[\w.]",
        "^",
        "$",
        r"\b",
        r"\B",
    ]
)
COUNTS = st.sampled_from(["", "*", "+", "?", "*?", "{2}", "{1,3}", "{2,}", "{0,2}?"])


def grown(smaller: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(smaller, min_size=1, max_size=4).map("".join),
        st.lists(smaller, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(smaller, COUNTS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        smaller.map(lambda part: f"(?i:{part})"),
    )


PATTERNS = st.recursive(LEAVES, grown, max_leaves=12)
# Not the empty name: before 3.14, Python had it that \B does not match there.
NAMES = st.text("abAB-_.01", min_size=1, max_size=8)


@given(PATTERNS, st.lists(NAMES, max_size=10))
def test_patterns_match_the_same_names_as_pythons_re(text: str, names: list[str]) -> None:
    # Python's \Z is what $ means here; in a name there is no newline, before which $ could match too.
    expected = frozenset(name for name in names if re.fullmatch(text, name, re.ASCII))
    assert run_all_steps(Pattern(text).select_matching_names(names)) == expected


@for_each(
    ("text", "matching", "others"),
    [
        ("orders", ["orders"], ["orders2", "my-orders", ""]),
        ("", [""], ["a"]),
        ("orders|payments-.*", ["orders", "payments-", "payments-eu"], ["orders-eu", "payments"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("a(?i)b", ["ab", "aB"], ["AB"]),
        ("(a(?i)b)c", ["abc", "aBc"], ["abC", "Abc"]),
        ("(?i:A)b", ["ab", "Ab"], ["aB"]),
        ("(?i-i:A)b", ["Ab"], ["ab"]),
        ("(?P<kind>a|b)(?<more>c)", ["ac", "bc"], ["cc"]),
        (r"\Qa.b\E+", ["a.b", "a.bbb"], ["axb", "a.ba.b"]),
        (r"a\Q", ["a"], ["ab"]),
        (r"[[:alpha:]]+[[:^digit:]]", ["ab", "a_"], ["a1", "1a"]),
        (r"\pL+\p{Nd}\PN\p{Greek}?\p{^Lu}", ["ab1xy"], ["ab1xY", "1"]),
        (r"\p{Latin}\p{Common}", ["a1", "b_"], ["1a"]),
        (r"\x61\x{62}\141", ["aba"], ["xab"]),
        ("[]a-]+", ["a-", "]"], ["b"]),
        ("[a-c-e]+", ["abc-e"], ["d"]),
        (r"[^\d\-]", ["a"], ["1", "-"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("a{2", ["a{2"], ["aa"]),
        (r"\Aab\z", ["ab"], ["abc"]),
        (r"a\b-\Bb?", ["a-"], ["a-b"]),
        ("é|a", ["a"], ["e"]),
        ("(?s:.)(?m:^)?(?U:b*)", ["a", "abb"], ["aab"]),
        ("(|a)+", ["", "aaa"], ["b"]),
        ("(a*)*", ["", "aaa"], ["b"]),
        ("(a?){3}b", ["b", "aaab"], ["aaaab"]),
    ],
)
def test_syntax_that_differs_from_python_follows_re2(text: str, matching: list[str], others: list[str]) -> None:
    assert run_all_steps(Pattern(text).select_matching_names([*matching, *others])) == set(matching)


@for_each(
    "text",
    [
        *("(", ")", "a)", "(a", "[a", "[z-a]", "[a-", "[[:no:]]", "*a", "a**", "a*+", "a{2}{3}", "(?i)*", "|*"),
        *(
            "a{1001}",
            "a{2,1}",
            "(a{100}){100}",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?#a)",
            "(?x)",
            "(?",
            "(?i",
            "(?P<n",
            "(?P<>a)",
        ),
        *(
            r"(?P<n>a)(?P<n>b)",
            r"(a)\1",
            r"\8",
            r"\Z",
            r"\y",
            "\\",
            r"\x",
            r"\xg1",
            r"\x{110000}",
            r"\x{",
            r"\p",
            r"\p{L",
        ),
        *(r"\p{No_such}", r"[\p{No_such}]", r"[a-\d]", "(?i-)", "(?-)"),
    ],
)
def test_syntax_that_re2_lacks_is_rejected(text: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(text)


@pytest.mark.parametrize("text", ["(" * 5000, "(" * 200 + "a" + ")" * 200, "a" * 10_001, "[a-z]{1000}" * 10])
def test_too_large_or_deep_patterns_are_rejected(text: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(text)


@pytest.mark.parametrize("text", ["(a+)+b", "(a|aa)+b", "(a|a)*b", "(.*a){20}b", "(a?){100}a{100}b"])
def test_patterns_that_backtrack_in_other_engines_match_in_linear_time(text: str) -> None:
    pattern = Pattern(text)
    assert not pattern.matches("a" * LONGEST_NAME)
    assert pattern.effort < MAXIMUM_EFFORT / 10


def test_a_pattern_that_takes_too_long_for_all_names_is_rejected() -> None:
    source = random.Random(1)
    names = ["".join(source.choices("ab", k=LONGEST_NAME)) for _ in range(1000)]
    with pytest.raises(InvalidPattern, match="takes too long"):
        run_all_steps(Pattern("([ab]*a[ab]{200}){2}x?").select_matching_names(names))


def test_matching_ordinary_topic_names_takes_few_steps() -> None:
    pattern = Pattern("(orders|payments|shipments)-(eu|us|asia)-v[0-9]+")
    names = [
        f"{kind}-{place}-v{number}" for kind in ("orders", "users") for place in ("eu", "us") for number in range(500)
    ]
    assert len(run_all_steps(pattern.select_matching_names(names))) == 1000
    assert pattern.effort < 5000
