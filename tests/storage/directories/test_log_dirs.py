"""Several log directories as one: which one a log goes to, and that all of them belong together.

What one directory does is tested in `test_log_directory.py`.
"""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.directories.log_dirs import LogDirectories
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.names import MOVED_MARKER
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.support import FailingDisk, Surroundings, append, batch, read_values

UNIQUE = "0123456789abcdef0123456789abcdef"
TOPIC_ID = bytes(range(16))


def opened(
    *paths: Path, cluster_id: str | None = None, node_id: int = 1, surroundings: Surroundings | None = None
) -> LogDirectories:
    numbers = count()
    return LogDirectories(
        (surroundings or Surroundings()).environment,
        [str(path) for path in paths],
        node_id=node_id,
        cluster_id=cluster_id,
        new_id=lambda: f"id-number-{next(numbers)}AAAAAAAAAAA",
    )


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


def test_a_new_log_is_created_in_the_directory_with_the_fewest_logs(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    for partition in range(5):
        logs.create_log("orders", partition, TOPIC_ID, LogSettings())
    assert [len(directory.logs) for directory in logs.directories] == [3, 2]
    assert logs.has_log("orders", 4)
    assert not logs.has_log("orders", 5)


def test_logs_are_found_in_all_directories(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    for partition in range(4):
        append(logs.create_log("orders", partition, TOPIC_ID, LogSettings()), batch(partition + 1))
    logs.close()
    logs = opened(*two)
    assert logs.was_clean_shutdown
    assert sorted(logs.list_logs()) == [("orders", partition) for partition in range(4)]
    for partition in range(4):
        log = logs.open_log("orders", partition, LogSettings())
        assert len(read_values(log)) == partition + 1
        assert logs.find_directory_of_log(log).path in log.directory


def test_the_cluster_id_is_created_once_and_then_read(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    assert logs.cluster_id == "id-number-0AAAAAAAAAAA"
    ids = [directory.directory_id for directory in logs.directories]
    assert ids == ["id-number-1AAAAAAAAAAA", "id-number-2AAAAAAAAAAA"]
    logs.close()
    logs = opened(*two)
    assert logs.cluster_id == "id-number-0AAAAAAAAAAA"
    logs.close()
    with pytest.raises(LogDirectoryError, match="cluster.id=id-number-0"):
        opened(*two, cluster_id="other")


def test_a_directory_that_is_added_joins_the_cluster(two: tuple[Path, Path]) -> None:
    opened(two[0]).close()
    logs = opened(two[1], two[0])
    assert {directory.cluster_id for directory in logs.directories} == {logs.cluster_id}


def test_directories_of_two_clusters_are_rejected(two: tuple[Path, Path]) -> None:
    for path, cluster_id in zip(two, ("first", "second"), strict=True):
        opened(path, cluster_id=cluster_id).close()
    with pytest.raises(LogDirectoryError, match="cluster.id=second"):
        opened(*two)
    opened(two[0])
    opened(two[1])


@pytest.mark.parametrize("spoil", ["a file", "another node", "in use", "a log of both"])
def test_one_unusable_directory_leaves_the_others_unchanged(tmp_path: Path, spoil: str) -> None:
    clean, new, bad = (tmp_path / name for name in ("clean", "new", "bad"))
    logs = opened(clean, cluster_id="same")
    logs.create_log("orders", 0, TOPIC_ID, LogSettings())
    logs.close()
    logs = opened(bad, cluster_id="same", node_id=2 if spoil == "another node" else 1)
    if spoil != "in use":
        logs.close()
    if spoil == "a log of both":
        (bad / "orders-0").mkdir()
    before = {path.name: path.read_bytes() for path in clean.iterdir() if path.is_file()}
    assert ".kafka_cleanshutdown" in before
    if spoil == "a file":
        shutil.rmtree(bad)
        bad.touch()
    with pytest.raises(LogDirectoryError):
        opened(clean, new, bad)
    assert {path.name: path.read_bytes() for path in clean.iterdir() if path.is_file()} == before
    assert not new.exists()
    assert bad.exists()


def test_a_directory_created_concurrently_by_another_process_is_left_to_it(tmp_path: Path) -> None:
    class Faster(FailingDisk):
        def make_directory(self, path: str) -> None:
            if not self.exists(path):
                self.winner = opened(Path(path))

    disk = Faster()
    with pytest.raises(LogDirectoryError, match="is in use by another process"):
        opened(tmp_path / "new", surroundings=Surroundings(disk))
    disk.winner.close()
    assert (tmp_path / "new" / "meta.properties").exists()


def test_a_directory_listed_twice_is_rejected(two: tuple[Path, Path]) -> None:
    with pytest.raises(LogDirectoryError, match="is listed twice"):
        opened(two[0], two[1], two[0])


def test_a_log_in_two_directories_is_rejected(two: tuple[Path, Path]) -> None:
    for path in two:
        (path / "orders-0").mkdir(parents=True)
    with pytest.raises(LogDirectoryError, match=r"orders-0 lies both in .*/a and in .*/b"):
        opened(*two)
    (two[1] / "orders-0").rmdir()
    opened(*two)


def test_a_moved_log_is_marked_until_the_removal_of_its_original_is_durable(two: tuple[Path, Path]) -> None:
    for path in two:
        (path / "orders-0").mkdir(parents=True)
    marker = two[1] / "orders-0" / MOVED_MARKER
    marker.touch()
    disk = FailingDisk()
    disk.failing, disk.suffix = {"sync"}, str(two[0])
    with pytest.raises(LogDirectoryError, match="a log that was moved is left in two directories"):
        opened(*two, surroundings=Surroundings(disk))
    assert marker.exists()
    disk.failing = set()
    assert opened(*two, surroundings=Surroundings(disk)).list_logs() == [("orders", 0)]
    assert not marker.exists() and not (two[0] / "orders-0").exists()


def test_one_unclean_directory_makes_the_start_unclean(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    logs.create_log("orders", 0, TOPIC_ID, LogSettings())
    logs.create_log("orders", 1, TOPIC_ID, LogSettings())
    logs.close()
    (two[1] / ".kafka_cleanshutdown").unlink()
    logs = opened(*two)
    assert not logs.was_clean_shutdown
    assert [directory.clean for directory in logs.directories] == [True, False]


def test_a_log_is_deleted_from_its_directory(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    log = logs.create_log("orders", 0, TOPIC_ID, LogSettings())
    logs.delete_log(log, UNIQUE)
    assert logs.list_logs() == []
    assert not logs.has_log("orders", 0)
    logs.write_checkpoints()


def test_log_operations_on_a_failing_disk_are_storage_errors(two: tuple[Path, Path]) -> None:
    disk = FailingDisk()
    logs = opened(*two, surroundings=Surroundings(disk))
    log = logs.create_log("orders", 0, TOPIC_ID, LogSettings())
    disk.failing = {"rename", "create"}
    for attempt in (
        lambda: logs.create_log("orders", 1, TOPIC_ID, LogSettings()),
        lambda: logs.delete_log(log, UNIQUE),
        lambda: logs.rename_log_to_stray("orders", 0, UNIQUE),
    ):
        with pytest.raises(KafkaError) as raised:
            attempt()
        assert raised.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.failing = set()
    append(log, batch(1))
    assert logs.list_logs() == [("orders", 0)]


def test_all_directories_are_closed_if_one_fails(two: tuple[Path, Path]) -> None:
    disk = FailingDisk()
    logs = opened(*two, surroundings=Surroundings(disk))
    for partition in range(2):
        append(logs.create_log("orders", partition, TOPIC_ID, LogSettings()), batch(2))
    disk.failing, disk.suffix = {"sync"}, "orders-0/00000000000000000000.log"
    with pytest.raises(KafkaError, match="orders-0: cannot flush"):
        logs.close()
    disk.failing = set()
    assert [directory.clean for directory in opened(*two).directories] == [False, True]


def test_a_checkpoint_is_written_in_every_directory(two: tuple[Path, Path]) -> None:
    logs = opened(*two)
    for partition in range(2):
        append(logs.create_log("orders", partition, TOPIC_ID, LogSettings()), batch(2))
    logs.write_checkpoint_soon("replication-offset-checkpoint")
    texts = [(path / "replication-offset-checkpoint").read_text() for path in two]
    assert texts == ["0\n1\norders 0 2\n", "0\n1\norders 1 2\n"]
