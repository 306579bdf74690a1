"""The metadata log of a rewritten directory says what its topics have become."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.pipeline.directory.cluster_metadata import read_metadata
from minibroker.pipeline.rewriting.rewrite_settings import RewriteError, RewriteSettings
from minibroker.pipeline.rewriting.topic_configs import CODEC, update_configs
from minibroker.protocol.records.compression import Compression
from tests.pipeline.verifying.metadata_logs import config, metadata

GZIP = RewriteSettings(codec=Compression.GZIP)


def log_of(directory: Path) -> Path:
    return directory / "__cluster_metadata-0" / f"{0:020d}.log"


def test_changed_configs_are_appended_to_the_metadata(tmp_path: Path) -> None:
    metadata(tmp_path, config("t", "lz4", CODEC))
    changes, are_made = update_configs(str(tmp_path), ["t"], GZIP, is_clean=True)
    assert are_made
    assert [change.name for change in changes] == [CODEC]
    assert read_metadata(tmp_path).configs["t"][CODEC] == "gzip"


def test_a_torn_end_of_the_metadata_is_truncated(tmp_path: Path) -> None:
    log = log_of(metadata(tmp_path, config("t", "lz4", CODEC)))
    log.write_bytes(log.read_bytes() + log.read_bytes()[:30])
    assert update_configs(str(tmp_path), ["t"], GZIP, is_clean=False)[1]
    found = read_metadata(tmp_path)
    assert (found.configs["t"][CODEC], found.unreadable, found.is_torn) == ("gzip", 0, False)


def test_a_corrupt_metadata_log_is_rejected_and_not_changed(tmp_path: Path) -> None:
    log = log_of(metadata(tmp_path, *(config(topic, "lz4", CODEC) for topic in "stu")))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(RewriteError, match="parts of it cannot be read"):
        update_configs(str(tmp_path), ["s"], GZIP, is_clean=True)
    assert log.read_bytes() == data
