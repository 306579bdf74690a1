"""One log directory over several lives: its lock, its identity, its checkpoints and its marker.

Several directories together are tested in `test_log_dirs.py`, what is in a log in `test_recovery.py`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from minibroker.operating_system import HAS_POSITIONED_IO
from minibroker.protocol.errors import KafkaError
from minibroker.storage.directories.log_directory import LogDirectory, choose_lasting_recovery_point
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.faulty_disk import FaultyDisk
from tests.storage.support import (
    CLUSTER_ID,
    NOW_MS,
    FailingDisk,
    Losing,
    Surroundings,
    append,
    batch,
    files_in,
    read_values,
)

DIRECTORY_ID = "w5vfbY-LQWCgOIYhBGbkUg"
TOPIC_ID = bytes(range(16))
UNIQUE = "0123456789abcdef0123456789abcdef"


def opened(
    path: Path, *, node_id: int = 1, cluster_id: str = CLUSTER_ID, surroundings: Surroundings | None = None
) -> LogDirectory:
    directory = LogDirectory((surroundings or Surroundings()).environment, str(path))
    try:
        directory.create_and_lock()
        directory.open(node_id, cluster_id, lambda: DIRECTORY_ID)
    except BaseException:
        directory.close_without_checkpoints()
        raise
    return directory


def test_a_new_directory_gets_its_meta_properties_in_kafkas_form(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    assert directory.clean
    assert directory.list_logs() == []
    assert (directory.cluster_id, directory.directory_id) == (CLUSTER_ID, DIRECTORY_ID)
    assert files_in(tmp_path / "data")["meta.properties"] == (
        b"#\n#Tue Nov 14 22:13:20 UTC 2023\n"
        b"cluster.id=6oQAEIunx_IyNNmJmG53dw\ndirectory.id=w5vfbY-LQWCgOIYhBGbkUg\nnode.id=1\nversion=1\n"
    )


def test_a_new_log_has_the_same_files_as_in_kafka(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("a-b", 3, TOPIC_ID, LogSettings())
    assert log.topic_id == TOPIC_ID
    assert files_in(tmp_path / "a-b-3") == {
        "00000000000000000000.log": b"",
        "partition.metadata": b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw",
    }


def test_a_log_whose_creation_failed_is_created_at_the_next_attempt(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, surroundings=Surroundings(disk))
    disk.failing = {"create"}
    with pytest.raises(LogDirectoryError, match="orders-0 cannot be created: .*Input/output error"):
        directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    assert not (tmp_path / "orders-0").exists()
    disk.failing = set()
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(2))
    directory.close_without_checkpoints()
    log = opened(tmp_path).open_log("orders", 0, LogSettings())
    assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 2)


def test_an_existing_directory_in_place_of_a_new_log_is_kept(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(directory.create_log("orders", 0, TOPIC_ID, LogSettings()), batch(2))
    shutil.copytree(tmp_path / "orders-0", tmp_path / "copied-0")
    log = directory.create_log("copied", 0, bytes(16), LogSettings())
    assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 2)


def test_a_topic_id_assigned_to_a_log_is_kept(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, bytes(16), LogSettings())
    assert not (tmp_path / "orders-0" / "partition.metadata").exists()
    directory.assign_topic_id(log, TOPIC_ID)
    assert log.topic_id == TOPIC_ID
    directory.close()
    assert opened(tmp_path).open_log("orders", 0, LogSettings()).topic_id == TOPIC_ID


def test_a_clean_stop_writes_the_same_files_as_kafka(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings(segment_bytes=200))
    for _ in range(5):
        append(log, batch(2))
    log.delete_records_before(3)
    directory.create_log("empty", 0, TOPIC_ID, LogSettings())
    directory.close(broker_epoch=17)
    files = files_in(tmp_path)
    del files["meta.properties"]
    assert files == {
        ".lock": b"",
        ".kafka_cleanshutdown": b'{"version":0,"brokerEpoch":17}',
        "recovery-point-offset-checkpoint": b"0\n2\nempty 0 0\norders 0 9\n",
        "replication-offset-checkpoint": b"0\n2\nempty 0 0\norders 0 10\n",
        "log-start-offset-checkpoint": b"0\n1\norders 0 3\n",
        "cleaner-offset-checkpoint": b"0\n0\n",
    }
    assert set(files_in(tmp_path / "empty-0")) == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "partition.metadata",
    }


def test_a_log_that_was_empty_at_a_stop_can_be_appended_to(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = opened(tmp_path)
    directory.create_log("empty", 0, TOPIC_ID, LogSettings())
    directory.close()
    directory = opened(tmp_path)
    with caplog.at_level("INFO"):
        append(directory.open_log("empty", 0, LogSettings()), batch(2))
    assert not caplog.records
    directory.close()
    assert "00000000000000000000.timeindex" in files_in(tmp_path / "empty-0")
    log = opened(tmp_path).open_log("empty", 0, LogSettings())
    assert (log.log_end_offset, log.segments[0].get_largest_timestamp()) == (2, NOW_MS)


def test_logs_are_unchanged_after_a_clean_stop(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(5))
    log.delete_records_before(2)
    directory.close()
    directory = opened(tmp_path)
    assert directory.clean
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert directory.list_logs() == [("orders", 0)]
    log = directory.open_log("orders", 0, LogSettings())
    assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (2, 5, TOPIC_ID)


def test_logs_are_recovered_after_an_unclean_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(5))
    directory.close_without_checkpoints()
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes() + b"torn")
    directory = opened(tmp_path)
    assert not directory.clean
    assert len(read_values(directory.open_log("orders", 0, LogSettings()))) == 5
    assert "orders-0" in caplog.text
    directory.close_without_checkpoints()
    assert not opened(tmp_path).clean


def test_checkpoints_limit_the_recovery_after_a_crash(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(5))
    log.flush()
    append(log, batch(5))
    log.delete_records_before(3)
    directory.write_checkpoints()
    directory.close_without_checkpoints()
    log = opened(tmp_path).open_log("orders", 0, LogSettings())
    assert (log.log_start_offset, log.recovery_point, log.log_end_offset) == (3, 4, 10)


def test_the_checkpoint_stays_valid_when_the_next_append_rolls_a_segment(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    points = []
    for act in (
        partial(append, log, batch(5)),
        log.flush,
        log.roll_segment_if_used,
        partial(append, log, batch(5)),
        log.flush,
    ):
        act()
        points.append((log.recovery_point, choose_lasting_recovery_point(log)))
    assert points == [(0, 0), (5, 4), (5, 5), (5, 5), (10, 9)]


@pytest.mark.parametrize("damaged", [False, True])
def test_a_checkpoint_beyond_the_log_end_is_lowered_before_the_log_is_used(tmp_path: Path, damaged: bool) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    for _ in range(2):
        append(log, batch(5))
    directory.close_without_checkpoints()
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders 0 10\n")
    if damaged:
        with (tmp_path / "orders-0" / "00000000000000000000.log").open("r+b") as file:
            file.truncate(2 * len(batch(5)) - 1)
    opened(tmp_path).open_log("orders", 0, LogSettings())
    lowered = b"orders 0 4\n" if damaged else b"orders 0 9\n"
    assert files_in(tmp_path)["recovery-point-offset-checkpoint"] == b"0\n1\n" + lowered


def test_an_unreadable_disk_is_reported_in_one_line() -> None:
    disk = FaultyDisk(Losing())
    directory = opened(Path("/data"), surroundings=Surroundings(disk))
    disk.failing = {"open"}
    with pytest.raises(LogDirectoryError, match="cannot be used: Input/output error"):
        directory.list_logs()


def test_the_directory_and_its_parents_survive_a_power_loss() -> None:
    disk = FaultyDisk(Losing())
    directory = opened(Path("/srv/kafka/data"), surroundings=Surroundings(disk))
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(3))
    log.flush()
    disk.cut_power()
    log = opened(Path("/srv/kafka/data"), surroundings=Surroundings(disk)).open_log("orders", 0, LogSettings())
    assert log.log_end_offset == 3


def test_a_log_that_was_never_opened_keeps_its_checkpoints_and_stays_unclean(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for topic in ("opened", "ignored"):
        log = directory.create_log(topic, 0, TOPIC_ID, LogSettings())
        append(log, batch(5))
        log.delete_records_before(2)
    directory.write_checkpoints()
    directory.close_without_checkpoints()
    directory = opened(tmp_path)
    directory.open_log("opened", 0, LogSettings())
    directory.close()
    directory = opened(tmp_path)
    assert not directory.clean
    assert directory.open_log("ignored", 0, LogSettings()).log_start_offset == 2


def test_a_stop_with_a_failing_log_is_unclean(tmp_path: Path) -> None:
    surroundings = Surroundings(disk := FailingDisk())
    directory = opened(tmp_path, surroundings=surroundings)
    append(directory.create_log("orders", 0, TOPIC_ID, LogSettings()), batch(1))
    disk.failing = {"sync"}
    with pytest.raises(Exception, match="Input/output error"):
        directory.close()
    assert not opened(tmp_path).clean


def test_all_logs_are_closed_if_one_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    directory = opened(tmp_path, surroundings=Surroundings(disk))
    for topic in ("bad", "good"):
        append(directory.create_log(topic, 0, TOPIC_ID, LogSettings()), batch(5))
    disk.failing, disk.suffix = {"sync"}, "bad-0/00000000000000000000.log"
    with pytest.raises(KafkaError, match="bad-0: cannot flush"):
        directory.close()
    disk.failing = set()
    directory = opened(tmp_path, surroundings=Surroundings(disk))
    assert not directory.clean
    logs = [directory.open_log(topic, 0, LogSettings()) for topic in ("bad", "good")]
    assert [(log.recovery_point, log.log_end_offset) for log in logs] == [(0, 5), (4, 5)]


def test_one_checkpoint_file_can_be_written_without_the_other(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(5))
    log.delete_records_before(2)
    directory.write_checkpoint_soon("log-start-offset-checkpoint")
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    log.roll_segment_if_used()
    log.delete_records_before(5)
    directory.write_checkpoint_soon("log-start-offset-checkpoint")
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"


def test_a_file_in_place_of_the_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogDirectoryError, match=f"{tmp_path}/file cannot be used: it is a file, not a directory"):
        opened(tmp_path / "file")


def test_a_directory_in_use_is_rejected_until_it_is_released(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    with pytest.raises(LogDirectoryError, match=f"log directory {tmp_path} is in use by another process"):
        opened(tmp_path)
    directory.close()
    opened(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_id": 2}, "says node.id=1, but this broker has 2; set node.id=1 to start that broker, or another"),
        ({"cluster_id": "other"}, f"has other; give --cluster-id {CLUSTER_ID} to start that cluster"),
    ],
)
def test_another_brokers_directory_is_rejected_and_left_unchanged(
    tmp_path: Path, options: dict[str, str], message: str
) -> None:
    opened(tmp_path).close()
    before = files_in(tmp_path)
    with pytest.raises(LogDirectoryError, match=message):
        opened(tmp_path, **options)  # type: ignore[arg-type]
    assert files_in(tmp_path) == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"version=2\nnode.id=1\ncluster.id=%s\n" % CLUSTER_ID.encode(), "says version=2, but this broker has 1"),
        (b"version=0\nbroker.id=2\ncluster.id=%s\n" % CLUSTER_ID.encode(), "says broker.id=2, but this broker has 1"),
        (b"version=1\nnode.id=1\n", "says cluster.id=None"),
    ],
)
def test_meta_properties_of_an_unknown_version_or_broker_are_rejected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    with pytest.raises(LogDirectoryError, match=message):
        opened(tmp_path)


def test_a_directory_id_is_added_to_directories_of_older_brokers(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(f"version=1\nnode.id=1\ncluster.id={CLUSTER_ID}\n".encode())
    assert opened(tmp_path).directory_id == DIRECTORY_ID
    assert f"directory.id={DIRECTORY_ID}\n".encode() in files_in(tmp_path)["meta.properties"]


def test_properties_of_version_0_are_upgraded_to_version_1(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n".encode())
    opened(tmp_path).close()
    lines = files_in(tmp_path)["meta.properties"].splitlines()
    assert {b"version=1", b"node.id=1", f"cluster.id={CLUSTER_ID}".encode()} <= set(lines)
    assert not any(line.startswith(b"broker.id") for line in lines)


def test_logs_of_a_zookeeper_based_kafka_are_rejected_and_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_bytes(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n".encode())
    (tmp_path / "orders-0").mkdir()
    before = files_in(tmp_path)
    with pytest.raises(LogDirectoryError, match="was written by a Kafka with ZooKeeper"):
        opened(tmp_path)
    assert {**before, ".lock": b""} == files_in(tmp_path)


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_a_malformed_checkpoint_is_rejected_by_name_and_an_empty_one_is_accepted(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    opened(tmp_path).close_without_checkpoints()
    (tmp_path / name).write_bytes(b"0\n7\n")
    with pytest.raises(LogDirectoryError, match=f"{name} is malformed"):
        opened(tmp_path)


def spoil_lock(path: Path) -> None:
    (path / ".lock").mkdir()


def spoil_whole(path: Path) -> None:
    path.rmdir()
    path.write_bytes(b"a file")


@pytest.mark.parametrize("spoil", [spoil_lock, spoil_whole])
def test_an_unusable_directory_is_rejected_in_one_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "data"
    path.mkdir()
    spoil(path)
    with pytest.raises(LogDirectoryError, match=f"log directory {path} cannot be used: ") as raised:
        opened(path)
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(not HAS_POSITIONED_IO, reason="open files cannot be removed there")
def test_a_deleted_logs_name_is_free_immediately_and_its_files_are_deleted_later(tmp_path: Path) -> None:
    surroundings = Surroundings()
    directory = opened(tmp_path, surroundings=surroundings)
    log = directory.create_log("a-b", 3, TOPIC_ID, LogSettings(file_delete_delay_ms=500))
    append(log, batch(2))
    region = log.read(0, 1000)
    assert region is not None
    directory.delete_log(log, UNIQUE)
    assert directory.list_logs() == []
    assert (tmp_path / f"a-b-3.{UNIQUE}-delete").is_dir()
    again = directory.create_log("a-b", 3, TOPIC_ID, LogSettings())
    assert again.log_end_offset == 0
    assert [delay for delay, _ in surroundings.scheduled] == [500]
    surroundings.run_scheduled()
    assert not (tmp_path / f"a-b-3.{UNIQUE}-delete").exists()
    assert len(region.read()) == region.size_bytes
    directory.close()
    assert files_in(tmp_path)["recovery-point-offset-checkpoint"] == b"0\n1\na-b 3 0\n"


def test_a_new_log_inherits_nothing_from_a_deleted_namesake_even_after_a_crash(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create_log("orders", 0, TOPIC_ID, LogSettings())
    append(log, batch(9))
    log.delete_records_before(9)
    log.flush()
    directory.write_checkpoints()
    directory.delete_log(log, UNIQUE)
    append(directory.create_log("orders", 0, TOPIC_ID, LogSettings()), batch(3))
    directory.close_without_checkpoints()
    log = opened(tmp_path).open_log("orders", 0, LogSettings())
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (0, 3, 0)


def test_logs_deleted_together_cause_one_write_per_checkpoint(tmp_path: Path) -> None:
    surroundings = Surroundings()
    directory = opened(tmp_path, surroundings=surroundings)
    logs = [directory.create_log("orders", partition, TOPIC_ID, LogSettings()) for partition in range(20)]
    directory.write_checkpoints()
    before = files_in(tmp_path)["recovery-point-offset-checkpoint"]
    for number, log in enumerate(logs[1:]):
        directory.delete_log(log, f"{number:032x}")
    assert files_in(tmp_path)["recovery-point-offset-checkpoint"] == before
    assert len(surroundings.scheduled) == len(logs)  # nineteen directories are to be removed, and once it is written
    surroundings.run_scheduled()
    assert files_in(tmp_path)["recovery-point-offset-checkpoint"] == b"0\n1\norders 0 0\n"


def test_a_log_that_was_deleted_before_a_stop_is_removed_at_the_next_start(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.delete_log(directory.create_log("orders", 0, TOPIC_ID, LogSettings()), UNIQUE)
    directory.close()
    opened(tmp_path)
    assert not list(tmp_path.glob("*-delete"))


def test_a_stray_log_keeps_its_files_and_is_no_longer_listed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(directory.create_log("orders", 0, TOPIC_ID, LogSettings()), batch(2))
    path = Path(directory.rename_log_to_stray("orders", 0, UNIQUE))
    assert path == tmp_path / f"orders-0.{UNIQUE}-stray"
    assert (path / "00000000000000000000.log").stat().st_size > 0
    directory.close()
    assert opened(tmp_path).list_logs() == []
    assert path.is_dir()


def test_other_files_and_directories_are_not_treated_as_logs(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / f"orders-1.{UNIQUE}-future").mkdir()
    (tmp_path / "orders-2").write_bytes(b"")
    assert opened(tmp_path).list_logs() == [("orders", 0)]


def test_meta_properties_has_the_time_of_the_given_clock(tmp_path: Path) -> None:
    surroundings = Surroundings()
    surroundings.now_ms = NOW_MS + 86_400_000
    opened(tmp_path, surroundings=surroundings)
    assert b"#Wed Nov 15 22:13:20 UTC 2023" in files_in(tmp_path)["meta.properties"]
