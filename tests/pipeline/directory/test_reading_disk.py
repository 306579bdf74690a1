"""Log directories in other file systems: read by pyarrow as local ones are, with the same rows."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow.fs
import pytest

from minibroker.pipeline.archiving.archived_topics import find_topic_configs
from minibroker.pipeline.directory import reading_disk
from minibroker.pipeline.directory.finding import find_logs, parse_log_paths
from minibroker.pipeline.directory.reading_disk import DISK, make_url, normalize_path
from minibroker.pipeline.log_opening import read_in_this_process, select_partitions
from minibroker.pipeline.log_source import OptionError, TopicPartition
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.pipeline.verifying.verify_job import verify
from tests.pipeline.verifying.metadata_logs import config, metadata, topic
from tests.pipeline.verifying.planted import FAULTS
from tests.pipeline.verifying.support import Writer, written


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The content of s3://bucket, which is a local directory."""
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[pyarrow.fs.FileSystem, str]:
        asked.append(uri)
        return pyarrow.fs.SubTreeFileSystem(str(tmp_path), pyarrow.fs.LocalFileSystem()), "bucket"

    monkeypatch.setattr(pyarrow.fs, "FileSystem", type("FileSystem", (), {"from_uri": staticmethod(from_uri)}))
    reading_disk.make_file_system.cache_clear()
    (tmp_path / "bucket" / "logs").mkdir(parents=True)
    yield tmp_path / "bucket"
    reading_disk.make_file_system.cache_clear()
    assert set(asked) <= {"s3://bucket", "s3://bucket?region=x&scheme=http"}


def options(path: str, **others: str) -> ReadOptions:
    return parse_options({"path": path, "subscribe": "orders", **others}, "records", "batch")


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("url", ["s3a://bucket/logs/", "s3://bucket/logs?region=x&scheme=http"])
def test_a_log_directory_in_a_bucket_has_the_same_rows_as_a_local_one(bucket: Path, url: str, level: str) -> None:
    written(metadata(bucket / "logs", topic("orders"), config("orders", "compact")))
    here, there = (options(path, **{"isolation.level": level}) for path in (str(bucket / "logs"), url))
    columns = ("offset", "key", "value", "timestamp")
    assert list(read_in_this_process(there, columns)) == list(read_in_this_process(here, columns)) != []
    assert find_topic_configs(there, ["orders"]) == {"orders": {"cleanup.policy": "compact"}}


@pytest.mark.parametrize("kind", ["crc", "checkpoint", "txnindex-count", "snapshot-state", "hanging-transaction"])
def test_a_log_directory_in_a_bucket_has_the_same_findings_as_a_local_one(bucket: Path, kind: str) -> None:
    FAULTS[kind](bucket / "logs")
    here, there = verify(str(bucket / "logs")), verify("s3://bucket/logs?region=x&scheme=http")
    assert kind in here.column("kind").to_pylist()
    assert there == here


def test_a_partition_and_several_directories_are_found_by_url(bucket: Path) -> None:
    Writer(bucket / "logs").close()
    orders = TopicPartition("orders", 0)
    assert list(find_logs(parse_log_paths("s3://bucket/logs/orders-0"))) == [orders]
    assert list(find_logs(parse_log_paths(f"s3://bucket/logs,{bucket}/none")[:1])) == [orders]
    assert select_partitions(options("s3://bucket/logs")) == [orders]


def test_a_missing_directory_is_reported(bucket: Path) -> None:
    for url in ("s3://bucket/nothing", "s3://bucket/nothing?region=x&scheme=http"):
        with pytest.raises(OptionError) as caught:
            find_logs(parse_log_paths(url))
        assert str(caught.value) == f"path: {url}: No such file or directory"
    with pytest.raises(FileNotFoundError):
        DISK.get_size_and_modified_ns("s3://bucket/nothing")
    assert not DISK.exists("s3://bucket/nothing")
    assert DISK.exists("s3://bucket/logs") and DISK.is_directory("s3://bucket/logs")


def test_a_log_directory_is_listed_in_one_request(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Writer(bucket / "logs").close()
    (bucket / "logs" / "file-0").touch()
    monkeypatch.setattr(DISK, "is_directory", None)  # a request for each partition
    for path in ("s3://bucket/logs", str(bucket / "logs")):
        assert list(find_logs([normalize_path(path)])) == [TopicPartition("orders", 0)]


def test_an_unknown_file_system_is_reported() -> None:
    with pytest.raises(OptionError, match="path: floppy://a: Unrecognized filesystem type"):
        find_logs(parse_log_paths("floppy://a/b"))


def test_paths_are_converted_to_their_internal_forms() -> None:
    assert normalize_path("file:/a%20b") == "/a b"
    assert normalize_path("/a?b") == "/a?b"
    assert normalize_path("s3n://bucket/a?x=y") == "s3+x=y://bucket/a"
    urls = ("s3://bucket/a?x=y", "s3://bucket/a", "/a?b")
    assert tuple(make_url(normalize_path(url)) for url in urls) == urls


def test_an_unresponsive_name_node_is_reported_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_disk, "find_spec", lambda name: name)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        where = f"hdfs://127.0.0.1:{unused.getsockname()[1]}/logs"
        with pytest.raises(OptionError, match="path: .*Connection refused"):
            parse_log_paths(where)
    with pytest.raises(OptionError, match="path: hdfs://127.0.0.1:x: invalid literal"):
        parse_log_paths("hdfs://127.0.0.1:x/logs")
