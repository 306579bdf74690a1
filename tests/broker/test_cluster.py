"""The cluster: what a start makes of a directory, nodes that are away, strays, and who learns of an append."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest

from minibroker.broker.metadata.leaders import get_led_partition
from minibroker.broker.metadata.metadata_log import MetadataError
from minibroker.broker.metadata.nodes import Endpoint
from minibroker.broker.metadata.partitions import NO_LEADER
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.metadata_records import BROKER_RESOURCE
from minibroker.storage.log_settings import LogSettings
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.broker.harness import Harness

ID = bytes(15) + b"\x07"


def directories(harness: Harness) -> list[str]:
    return sorted(path.name for path in (harness.directory / "data").iterdir() if path.is_dir())


def contents(harness: Harness, topic: str, index: int = 0) -> bytes:
    """All batches of a partition, as they lie in its log."""
    log = harness.partition(topic, index).log
    region = log.read(log.log_start_offset, 1 << 20)
    return b"" if region is None else region.read()


# --- start --------------------------------------------------------------------------------------


def test_a_new_cluster_records_its_features_once(harness: Harness) -> None:
    levels = {"metadata.version": 33, "group.version": 1, "transaction.version": 2}
    levels |= {"eligible.leader.replicas.version": 1, "share.version": 2, "streams.version": 1}
    assert harness.cluster.image.features == levels
    harness.restart()
    seen: list[Message] = []
    harness.cluster.metadata_log.replay_all_records(seen.append)
    assert [type(record) for record in seen].count(records.FeatureLevelRecord) == len(levels)


def test_a_new_cluster_has_one_cluster_wide_min_insync_replicas(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"min.insync.replicas": "2"}) as harness:
        harness.restart(settings={"min.insync.replicas": "3"})
        assert harness.cluster.image.get_configs(BROKER_RESOURCE, "") == {"min.insync.replicas": "2"}
        assert harness.cluster.settings["min.insync.replicas"] == 2


@pytest.mark.parametrize("crash", [False, True])
def test_all_acknowledged_changes_survive_a_restart(harness: Harness, crash: bool) -> None:
    harness.create_topic("kept", 2, segment_ms="5000")
    harness.create_topic("gone")
    harness.produce("kept", "a", "b")
    harness.produce("kept", "c", partition=1)
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["gone"])
    harness.cluster.controller.add_partitions("kept", 3)
    before = {index: contents(harness, "kept", index) for index in range(3)}
    topic_id, cluster_id = harness.cluster.image.topics["kept"].topic_id, harness.cluster.cluster_id

    harness.restart(crash=crash)

    (topic,) = harness.cluster.image.topics.values()
    assert (topic.name, topic.topic_id, topic.overrides) == ("kept", topic_id, {"segment.ms": "5000"})
    assert {index: contents(harness, "kept", index) for index in range(3)} == before
    assert [partition.log.settings.segment_ms for partition in topic.partitions] == [5000] * 3
    assert harness.cluster.cluster_id == cluster_id
    assert harness.produce("kept", "d") == 2


def test_a_recreated_topic_is_loaded_instead_of_its_namesake(harness: Harness) -> None:
    for value in ("old", "new"):
        harness.create_topic("t")
        harness.produce("t", value)
        if value == "old":
            harness.cluster.controller.delete_topic(harness.cluster.image.topics["t"])
    harness.restart(crash=True)
    assert b"new" in contents(harness, "t")
    assert b"old" not in contents(harness, "t")


def test_changed_static_settings_apply_to_the_topics_after_a_restart(harness: Harness) -> None:
    harness.create_topic("t")
    harness.restart(settings={"log.segment.bytes": "2000000"})
    assert harness.partition("t").log.settings.segment_bytes == 2_000_000


def test_a_partition_whose_directory_is_missing_accepts_records_again(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "a")
    harness.stop()
    for path in (harness.directory / "data" / "t-0").iterdir():
        path.unlink()
    (harness.directory / "data" / "t-0").rmdir()
    harness.start()
    assert harness.produce("t", "b") == 0


def test_configs_known_only_to_another_kafka_version_do_not_prevent_the_start(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t", retention_ms="5")
    harness.cluster.metadata_log.append_messages(
        [
            records.ConfigRecord(resource_type=2, resource_name="t", name="of.the.future", value="1"),
            records.ConfigRecord(resource_type=4, resource_name="", name="num.io.threads", value="8"),
        ],
        0,
        1,
    )
    with caplog.at_level(logging.WARNING):
        harness.restart()
    assert harness.cluster.image.topics["t"].overrides == {"retention.ms": "5"}
    assert harness.cluster.image.get_configs(BROKER_RESOURCE, "")["num.io.threads"] == "8"
    assert "of.the.future" in caplog.text and "num.io.threads" in caplog.text


# --- partitions of other processes --------------------------------------------------------------


def test_a_partition_without_local_replicas_has_no_log_and_no_leader(harness: Harness) -> None:
    topic = records.TopicRecord(name="t", topic_id=ID)
    elsewhere = records.PartitionRecord(partition_id=0, topic_id=ID, replicas=[7, 8], isr=[7, 8], leader=7)
    shared = records.PartitionRecord(partition_id=1, topic_id=ID, replicas=[7, 1], isr=[7, 1], leader=7)
    config = records.ConfigRecord(resource_type=2, resource_name="t", name="segment.bytes", value="3000000")
    harness.cluster.commit_metadata_records([topic, elsewhere, shared, config])
    harness.restart()
    one, other = harness.partition("t", 0), harness.partition("t", 1)
    assert (one.has_local_log, one.leader_id, other.has_local_log, other.leader_id) == (False, NO_LEADER, True, 1)
    assert directories(harness) == ["__cluster_metadata-0", "t-1"]
    harness.cluster.controller.change_config(2, "t", {"segment.bytes": "2000000"})
    assert harness.produce("t", "v", partition=1) == 0
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["t"])
    assert [name for name in directories(harness) if not name.endswith("-delete")] == ["__cluster_metadata-0"]


def test_a_local_log_of_another_nodes_replica_is_kept(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.cluster.controller.create_topic("t", assignment=[(0, [2])])
        harness.restart(nodes=[1])
        assert harness.partition("t").has_local_log
        assert directories(harness) == ["__cluster_metadata-0", "t-0"]


def test_an_advertised_address_is_formatted_as_host_and_port() -> None:
    assert str(Endpoint("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert str(Endpoint("::1", 9092)) == "[::1]:9092"


def test_logs_without_metadata_are_rejected_and_left_unchanged(harness: Harness) -> None:
    harness.create_topic("t", 2)
    harness.stop()
    shutil.rmtree(harness.directory / "data" / "__cluster_metadata-0")
    with pytest.raises(MetadataError, match="data holds 2 logs, but no __cluster_metadata-0, which says what they are"):
        harness.start()
    assert directories(harness) == ["t-0", "t-1"]


# --- strays -------------------------------------------------------------------------------------


def test_a_log_of_an_unknown_topic_is_renamed_as_stray_with_a_warning(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t")
    harness.logs.create_log("stray", 0, ID, LogSettings())
    harness.logs.create_log("t", 5, ID, LogSettings())
    with caplog.at_level(logging.WARNING):
        harness.restart()
    names = directories(harness)
    assert [name for name in names if not name.endswith("-stray")] == ["__cluster_metadata-0", "t-0"]
    assert [name.split(".")[0] for name in names if name.endswith("-stray")] == ["stray-0", "t-5"]
    assert "stray-0 is not a partition of this cluster" in caplog.text


def test_a_log_of_an_older_topic_of_the_same_name_is_renamed_as_stray(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "older")
    topic = harness.cluster.image.topics["t"]
    harness.cluster.commit_metadata_records([records.RemoveTopicRecord(topic_id=topic.topic_id)])  # and then it crashes
    harness.logs.close_without_checkpoints()
    harness.start()
    harness.create_topic("t")
    assert (contents(harness, "t"), len(directories(harness))) == (b"", 3)


@pytest.mark.parametrize("left", [b"", None])
def test_the_topic_id_file_that_a_crash_lost_is_written_again(harness: Harness, left: bytes | None) -> None:
    harness.create_topic("t")
    harness.produce("t", "precious")
    file = harness.directory / "data" / "t-0" / "partition.metadata"
    before = file.read_bytes()
    harness.stop(crash=True)
    file.unlink() if left is None else file.write_bytes(left)
    harness.start()
    assert file.read_bytes() == before
    assert (b"precious" in contents(harness, "t"), len(directories(harness))) == (True, 2)


def test_a_stray_log_loses_no_records(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "precious")
    harness.cluster.commit_metadata_records(
        [records.RemoveTopicRecord(topic_id=harness.cluster.image.topics["t"].topic_id)]
    )
    harness.restart()
    (stray,) = (harness.directory / "data").glob("*-stray")
    assert b"precious" in (stray / "00000000000000000000.log").read_bytes()


# --- damage -------------------------------------------------------------------------------------


def test_corrupt_metadata_prevents_every_start_and_changes_nothing(harness: Harness) -> None:
    harness.create_topic("t")
    harness.stop()
    file = harness.directory / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    sound = file.read_bytes()
    damaged = bytearray(sound)
    damaged[-20] ^= 0xFF
    file.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(MetadataError):
            harness.start()
        assert file.read_bytes() == damaged
    file.write_bytes(sound)
    harness.start()
    assert list(harness.cluster.image.topics) == ["t"]


METADATA = "data/__cluster_metadata-0/00000000000000000000.log"
WAYS_OUT = "; `minibroker repair .*/data` rebuilds what it can, --set accept.lost.metadata=true starts without it$"


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    ("flipped", "what"), [(35, "partition.metadata says that it is of topic"), (3, "partition.metadata is malformed")]
)
def test_a_wrong_topic_id_of_the_metadata_log_is_rejected(
    harness: Harness, crash: bool, flipped: int, what: str
) -> None:
    harness.create_topic("t")
    harness.stop(crash=crash)
    file = harness.directory / "data" / "__cluster_metadata-0" / "partition.metadata"
    damaged = bytearray(file.read_bytes())
    damaged[flipped] ^= 2
    file.write_bytes(damaged)
    if crash and flipped == 3:  # what a crash may leave is written again
        harness.start()
        assert list(harness.cluster.image.topics) == ["t"]
        return
    with pytest.raises(MetadataError, match=what + ".*" + WAYS_OUT):
        harness.start()
    assert (file.read_bytes(), directories(harness)) == (damaged, ["__cluster_metadata-0", "t-0"])


@pytest.mark.parametrize("left", [0, 60, 400, -1, -70])
def test_metadata_that_lost_its_end_after_a_stop_is_rejected(harness: Harness, left: int) -> None:
    harness.create_topic("t")
    harness.stop()
    file = harness.directory / METADATA
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(MetadataError, match="__cluster_metadata-0.*" + WAYS_OUT):
        harness.start()
    assert directories(harness) == ["__cluster_metadata-0", "t-0"]


def test_metadata_that_is_corrupt_before_valid_records_is_rejected_after_a_kill(harness: Harness) -> None:
    harness.create_topic("t")
    harness.create_topic("u")
    harness.stop(crash=True)
    file = harness.directory / METADATA
    damaged = bytearray(file.read_bytes())
    at = damaged.index(b"\x02t")
    damaged[at] ^= 1
    file.write_bytes(damaged)
    reason = "is damaged at position [0-9]+, offset [0-9]+: behind it there is a sound batch at [0-9]+"
    with pytest.raises(MetadataError, match=reason + WAYS_OUT):
        harness.start()
    assert file.read_bytes() == damaged


def test_metadata_that_lost_a_topic_with_records_in_a_kill_is_rejected(harness: Harness) -> None:
    harness.create_topic("t")
    file = harness.directory / METADATA
    size = file.stat().st_size
    harness.create_topic("u")
    harness.produce("u", "precious")
    harness.stop(crash=True)
    file.write_bytes(file.read_bytes()[: size + 20])
    with pytest.raises(MetadataError, match="u-0 has records, and .*, does not know its topic.*" + WAYS_OUT):
        harness.start()
    assert directories(harness) == ["__cluster_metadata-0", "t-0", "u-0"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EMFILE])
def test_metadata_that_cannot_be_opened_is_not_reported_as_corrupt(
    harness: Harness, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create_topic("t")
    harness.stop(crash=True)

    def ask(operation: str, path: str) -> None:
        if "__cluster_metadata-0" in path:
            raise OSError(number, os.strerror(number), path)

    with monkeypatch.context() as broken:
        broken.setattr(harness.disk, "ask", ask)
        with pytest.raises(MetadataError, match="__cluster_metadata-0 cannot be opened") as refused:
            harness.start()
    assert os.strerror(number) in str(refused.value) and "repair" not in str(refused.value)
    harness.start()
    assert list(harness.cluster.image.topics) == ["t"]


def test_a_torn_end_of_the_metadata_is_truncated_after_a_kill(harness: Harness) -> None:
    harness.create_topic("t")
    file = harness.directory / METADATA
    size = file.stat().st_size
    harness.create_topic("u")
    harness.stop(crash=True)
    file.write_bytes(file.read_bytes()[: size + 20])
    harness.start()
    assert list(harness.cluster.image.topics) == ["t"]


def test_a_start_that_accepts_lost_metadata_continues_without_the_lost_records(harness: Harness) -> None:
    harness.create_topic("t")
    harness.stop()
    (harness.directory / METADATA).write_bytes(b"")
    harness.start(settings={"accept.lost.metadata": "true"})
    assert list(harness.cluster.image.topics) == []
    assert any(name.startswith("t-0.") and name.endswith("-stray") for name in directories(harness))
    harness.restart(crash=True, settings={"accept.lost.metadata": "false"})


def test_a_log_with_a_later_epoch_than_the_metadata_is_reported(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t")
    partition = harness.partition("t")
    partition.leader_epoch = 7
    harness.produce("t", "of the future")
    harness.restart()
    assert "t-0 has leader epoch 7, and the metadata only 0" in caplog.text


def test_records_of_a_topic_deleted_just_before_a_kill_are_renamed_as_stray(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce("t", "no more")
    harness.cluster.commit_metadata_records(
        [records.RemoveTopicRecord(topic_id=harness.cluster.image.topics["t"].topic_id)]
    )
    harness.restart(crash=True)
    assert any(name.endswith("-stray") for name in directories(harness))


@pytest.mark.parametrize("wrong", ["AAAA", "AAAAAAAAAAAAAAAAAAAA!A", ""])
def test_an_invalid_directory_id_is_rejected_in_one_line(harness: Harness, wrong: str) -> None:
    harness.stop()
    properties = harness.directory / "data" / "meta.properties"
    lines = properties.read_text().splitlines()
    properties.write_text("\n".join(f"directory.id={wrong}" if "directory.id" in line else line for line in lines))
    with pytest.raises(LogDirectoryError, match=f"meta.properties says directory.id={wrong}, which is not an id of 22"):
        harness.start()
    properties.write_text("\n".join(line for line in lines if "directory.id" not in line))
    harness.start()


def test_a_missing_log_starts_empty_and_is_logged_with_a_warning(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    harness.create_topic("t", 2)
    harness.produce("t", "lost")
    harness.stop()
    shutil.rmtree(harness.directory / "data" / "t-0")
    with caplog.at_level(logging.WARNING):
        harness.start()
    assert contents(harness, "t") == b""
    assert "t-0 is in no log directory, and begins empty" in caplog.text
    assert "t-1" not in caplog.text


def test_a_directory_of_another_node_is_rejected(harness: Harness) -> None:
    harness.stop()
    properties = harness.directory / "data" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=7"))
    with pytest.raises(LogDirectoryError, match="node.id=7"):
        harness.start()


# --- nodes --------------------------------------------------------------------------------------


def test_only_the_leader_serves_a_partition(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=3) as harness:
        harness.create_topic("t", 3, 3)
        cluster, topic = harness.cluster, harness.cluster.image.topics["t"]
        for partition in topic.partitions:
            for node in cluster.nodes.values():
                if node.node_id == partition.leader_id:
                    assert get_led_partition(node.node_id, topic, partition.index) is partition
                    continue
                with pytest.raises(KafkaError) as raised:
                    get_led_partition(node.node_id, topic, partition.index)
                assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert f"{partition} is led by node {partition.leader_id}, not by node" in str(raised.value)


@pytest.mark.parametrize(("name", "index"), [("t", 1), ("t", -1), ("nope", 0)])
def test_an_unknown_partition_is_rejected(harness: Harness, name: str, index: int) -> None:
    harness.create_topic("t")
    with pytest.raises(KafkaError) as raised:
        get_led_partition(1, harness.cluster.image.topics.get(name), index)
    assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_whose_replicas_are_offline_has_no_leader(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t", 2)
        away = harness.partition("t").leader_id
        harness.restart(nodes=[3 - away])
        with pytest.raises(KafkaError, match="t-0 is led by nobody") as raised:
            get_led_partition(3 - away, harness.cluster.image.topics["t"], 0)
        assert raised.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_nodes_data_is_available_again_when_it_returns(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        harness.create_topic("t")
        harness.produce("t", "a")
        away = harness.partition("t").leader_id
        harness.restart(nodes=[3 - away])
        harness.restart(nodes=[1, 2])
        assert (harness.partition("t").leader_id, harness.produce("t", "b")) == (away, 1)


# --- waiting ------------------------------------------------------------------------------------


def test_deleting_a_topic_wakes_its_waiting_requests(harness: Harness) -> None:
    harness.create_topic("t")
    asked = FetchRequest.FetchTopic(
        topic="t", partitions=[FetchRequest.FetchTopic.FetchPartition(partition=0, partition_max_bytes=100)]
    )
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=100, session_epoch=-1, topics=[asked])
    waiting = harness.request(request, 12)
    assert not waiting.done
    harness.cluster.controller.delete_topic(harness.cluster.image.topics["t"])
    harness.end_turn()
    ((partition,),) = (topic.partitions for topic in waiting.response().responses)
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
