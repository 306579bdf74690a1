"""The checksum: known values, and both ways to find the function."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from minibroker.protocol.records import crc
from minibroker.protocol.records.crc import crc32c


@pytest.mark.parametrize(
    ("data", "checksum"),
    [  # RFC 3720, B.4
        (b"", 0),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
    ],
)
def test_crc32c_gives_the_published_check_values(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


def test_crc32c_accepts_views_of_writable_buffers() -> None:
    assert crc32c(memoryview(bytearray(b"x123456789x"))[1:-1]) == 0xE3069283


def test_a_checksum_can_be_continued_from_its_value_so_far() -> None:
    assert crc32c(b"56789", crc32c(b"1234")) == 0xE3069283


@pytest.mark.parametrize("missing", ["crc32c", "_crc32c"])
def test_the_python_package_replaces_a_missing_native_crc32c(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find_spec = PathFinder.find_spec
    monkeypatch.setattr(
        PathFinder, "find_spec", lambda name, path=None: None if name == missing else find_spec(name, path)
    )
    assert crc._load_extension() is None
    assert crc._load_crc32c()(b"123456789") == 0xE3069283


def test_loading_crc32c_imports_no_unneeded_module() -> None:
    program = (
        "import sys; before = set(sys.modules); import minibroker.protocol.records.crc;print(set(sys.modules) - before)"
    )
    loaded = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout
    assert "records.crc" in loaded
    assert "importlib.metadata" not in loaded
    assert "email" not in loaded
