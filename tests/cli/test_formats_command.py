"""`minibroker formats`: the figures, and what is no batch."""

from __future__ import annotations

import json

from tests.cases import for_each
from tests.cli.conftest import Run


def test_the_sizes_of_the_default_record_are_as_documented(run: Run) -> None:
    result = run("formats")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()[2:7]]
    assert [row[0] for row in rows] == ["1", "3", "10", "50", "100"]
    assert rows[0] == ["1", "26", "34", "71", "70", "34", "62"]
    assert rows[3] == ["50", "1300", "1700", "561", "511", "1700", "895"]
    assert "largest timestamp (8)" in result.stdout


def test_json_output_has_the_same_sizes_as_the_table(run: Run) -> None:
    result = run("formats", "--records", "2", "--value-size", "10", "--key-size", "0", "--json")
    assert json.loads(result.stdout) == [
        {
            "records": 2,
            "format_0": 52,
            "format_1": 68,
            "format_2": 75,
            "format_2_without_attributes": 73,
            "expected_before": 68,
            "expected_after": 79,
        }
    ]


@for_each(
    "arguments",
    [
        ["--records", "0"],
        ["--records", "1,,2"],
        ["--records", "x"],
        ["--records", "100001"],
        ["--value-size", "-1"],
        ["--records", "1000", "--value-size", "1000000"],
    ],
)
def test_an_invalid_batch_is_reported_in_one_line_with_status_2(run: Run, arguments: list[str]) -> None:
    result = run("formats", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("minibroker: ")
    assert result.stderr.count("\n") == 1
