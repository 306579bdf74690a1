"""Apache Kafka's DumpLogSegments on the files of a directory: what it says of each, and what it objects to.

Which files are dumped, and what must be in them, is the tests' business.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from conformance.kafka_tools import run_tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"
# Version 4.3 says this of every segment that does not begin at 0, Kafka's own included, when it reads record by record.
BEGINS_LATE = re.compile(r"Non-consecutive offsets in (?P<path>.*)\n  -1 is followed by (?P<offset>\d+)\n")


class Dump(NamedTuple):
    """`lines` are those about each file, in its order; `complaints` is what else was printed."""

    lines: dict[Path, list[str]]
    complaints: str


def dump(files: Iterable[Path], *options: str) -> Dump:
    """Run the tool on files. Raises AssertionError with what it printed if it fails."""
    printed = run_tool(TOOL, "--files", ",".join(map(str, sorted(files))), *options)
    parts = re.split(r"^Dumping (.*)\n", printed.out, flags=re.MULTILINE)
    lines = {Path(name): text.splitlines() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
    complaints = parts[0] + printed.err + "\n"
    for match in BEGINS_LATE.finditer(complaints):
        if int(Path(match["path"]).name[:20]) == int(match["offset"]):
            complaints = complaints.replace(match[0], "")
    return Dump(lines, complaints.strip())


def fields(line: str) -> dict[str, str]:
    """The `name: value` pairs of a line."""
    return dict(re.findall(r"(\w+): (\S+)", line))
