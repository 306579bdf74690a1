"""Damage anywhere in the files of a log: what is sound is read, and nothing fails in another way than it may.

Kinds of damage one by one are in `test_split_reading.py`.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from minibroker.pipeline.log_source import CorruptData, DataLoss, ReadRequest
from minibroker.protocol.records.formats import iterate_batches_in_any_format
from tests.pipeline.directory.support import (
    ORDERS,
    SMALL,
    Writer,
    fill,
    finish,
    log_in,
    overwrite,
    rows,
    source_of,
    whole,
)

REQUEST = ReadRequest("records", ("offset", "value", "_corrupt"), mode="PERMISSIVE")
BASE_OFFSET_BYTES = 8  # which no checksum covers, in any format

# (which batch or file, where in it, what is put there): numbers are fractions
CHANGE = st.tuples(st.floats(0, 0.999), st.floats(0, 0.999), st.binary(min_size=1, max_size=30))


@pytest.fixture(scope="module")
def written_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of all formats, with a transaction that was aborted and one that is open at the end."""
    directory = tmp_path_factory.mktemp("sound")
    log = log_in(directory, settings=SMALL)
    for magic, codec in ((2, 0), (1, 3), (0, 1), (2, 4), (1, 0)):
        fill(log, 12, magic=magic, codec=codec)
    for producer_id, committed in ((7, True), (8, False)):
        writer = Writer(log, producer_id)
        writer.write()
        fill(log, 5)
        writer.end(committed=committed)
    Writer(log, 9).write()
    fill(log, 12)
    finish(log)
    return directory


@given(changes=st.lists(CHANGE, min_size=1, max_size=3), splits=st.integers(0, 20), block_bytes=st.integers(61, 3000))
@example(changes=[(0.046875, 0.1015625, b"\0\x80")], splits=14, block_bytes=61)  # one that ends before it begins
@example(changes=[(0.828125, 0.25, b"\1")], splits=0, block_bytes=61)  # a batch that claims offsets of the next segment
def test_valid_batches_are_read_whatever_lies_between_them(
    written_directory: Path, changes: list[tuple[float, float, bytes]], splits: int, block_bytes: int
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(shutil.copytree(written_directory, Path(name) / "logs"))
        places = [
            (path, position, header.size_bytes, header)
            for path in sorted(directory.glob("*/*.log"))
            for position, header in iterate_batches_in_any_format(path.read_bytes())
        ]
        hit = set()
        for which, where, data in changes:
            number = round(which * (len(places) - 2))  # not the last one: that would be the end
            path, position, size, _ = places[number]
            at = BASE_OFFSET_BYTES + round(where * (size - BASE_OFFSET_BYTES - 1))
            overwrite(path, position + at, data[: size - at])
            hit.add(number)
        source = source_of(directory, block_bytes=block_bytes)
        plan = source.make_splits([whole(source)], splits)
        found = {row["offset"] for row in rows(source, plan, REQUEST) if not row["_corrupt"]}
        for number, (_, _, _, header) in enumerate(places):
            if number not in hit and not header.is_control:
                assert header.last_offset in found, number


@given(st.lists(CHANGE, min_size=1, max_size=5), st.integers(0, 20), st.booleans())
def test_reading_random_damage_raises_only_documented_errors(
    written_directory: Path, changes: list[tuple[float, float, bytes]], splits: int, is_committed: bool
) -> None:
    with TemporaryDirectory() as name:
        directory = Path(shutil.copytree(written_directory, Path(name) / "logs"))
        files = sorted(path for path in (directory / "orders-0").iterdir() if path.stat().st_size)
        for which, where, data in changes:
            path = files[round(which * (len(files) - 1))]
            overwrite(path, round(where * path.stat().st_size), data)
        source = source_of(directory, isolation_level="read_committed" if is_committed else "read_uncommitted")
        for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
            try:
                rows(source, source.make_splits([whole(source)], splits), replace(REQUEST, mode=mode))  # type: ignore[arg-type]
                source.find_offsets_at({ORDERS: 0})
            except (CorruptData, DataLoss):
                assert mode == "FAILFAST" or is_committed
