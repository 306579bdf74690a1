"""The tables of `docs/evidence.md` say what the reports and `expected.txt` say."""

import pytest

from conformance.kafka_tests import running
from conformance.kafka_tests.evidence import Class, classes_of, kept, merged, replaced, tables
from conformance.kafka_tests.running import Expected, Outcome

PASSED = Outcome("passed", "", 1.5)
OUTCOMES = {
    "a.B#c()": PASSED,
    "a.B#d()[1]": Outcome("skipped", "needs a meter", 0.5),
    "a.B#d()[2]": Outcome("failed", "5: failed: 6", 0.5),
    "a.C#e()": Outcome("failed", "", 0.5),
}
KNOWN = {"a.B#d()*": Expected("inside", "a meter | of the JVM")}
B = Class("groups", "2026-11-28", "a.B", 3, {"a.B#d()[1]": "needs a meter", "a.B#d()[2]": "5: failed: 6"})
C = Class("groups", "2026-11-28", "a.C", 1, {"a.C#e()": ""})


def test_a_test_report_is_read_back_unchanged() -> None:
    assert classes_of("groups", "2026-11-28", running.table(OUTCOMES)) == [B, C]


def test_the_result_with_the_most_tests_of_a_class_is_kept_and_of_equal_ones_the_latest() -> None:
    part, later = B._replace(tests=2, date="2026-11-29"), B._replace(date="2026-11-29", not_passed={})
    assert merged([B, C, part]) == [B, C]
    assert merged([later, B]) == [later]


def test_result_tables_count_and_name_failed_tests_by_kind_of_reason() -> None:
    assert tables([B, C], KNOWN, ["inside", "fault"]) == (
        "| run | date | tests | passed | inside | fault | unexplained |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| groups | 2026-11-28 | 4 | 1 | 2 |  | 1 |\n"
        "| all |  | 4 | 1 | 2 |  | 1 |\n"
        "\n"
        "| class | run | tests | passed | inside | fault | unexplained |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| `a.B` | groups | 3 | 1 | 2 |  |  |\n"
        "| `a.C` | groups | 1 | 0 |  |  | 1 |\n"
        "\n"
        "| kind | not passed | tests | why |\n"
        "| --- | --- | --- | --- |\n"
        "| inside | `a.B#d()*` | 2 | a meter \\| of the JVM |\n"
        "| unexplained | `a.C#e()` | 1 |  |"
    )


def test_result_tables_are_unchanged_without_a_report() -> None:
    tests = {"f.E#g()": "1 is not 2", **dict.fromkeys(["f.E#h()[1]", "f.E#h()[2]", "f.E#i()"], "needs a plugin")}
    known = KNOWN | {"f.E#h()*": Expected("inside", "a log"), "f.*": Expected("fault", "plugins")}
    e, g = Class("rest", "2026-11-29", "f.E", 9, tests), Class("rest", "2026-11-29", "f.G", 2, {"f.G#j()": ""})
    text = tables([B, C, e, g], known, ["inside", "fault"])
    assert tables(kept(text), known, ["inside", "fault"]) == text
    assert [len(each.not_passed) for each in kept(text)] == [2, 1, 4, 1]


def test_a_failed_test_without_a_known_reason_is_listed_as_unexplained() -> None:
    text = tables([B, C], KNOWN, ["inside"])
    assert "| unexplained | `a.B#d() 2` | 1 | a meter \\| of the JVM |" in tables(kept(text), {}, ["inside"])


def test_a_page_without_tables_of_test_classes_is_read_as_no_results() -> None:
    assert kept("") == kept(tables([C], {}, ["fault"])) == []


def test_the_text_between_the_comments_of_a_section_is_replaced() -> None:
    page = "head\n<!-- x: written by y -->\nold\n<!-- end of x -->\ntail\n"
    once = replaced(page, "x", r"new \1")
    assert once == "head\n<!-- x: written by y -->\n\nnew \\1\n\n<!-- end of x -->\ntail\n"
    assert replaced(once, "x", r"new \1") == once
    with pytest.raises(ValueError, match="'z'"):
        replaced(page, "z", "new")
