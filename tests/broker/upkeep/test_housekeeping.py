"""Each chore is done at its interval, under the settings of that moment, and for logs that are in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.control.token_changes import issue_token
from minibroker.broker.security.principals import Principal
from minibroker.broker.upkeep.housekeeping import Housekeeping
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.broker.harness import Harness, Waiting
from tests.storage.support import FailingDisk

INITIAL_DELAY_MS = 30_000
RETENTION_CHECK_MS = 300_000
DAY_MS = 86_400_000
HOUR_MS = 3_600_000
TOPIC, BROKER = 2, 4


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def kept(tmp_path: Path, disk: FailingDisk) -> Iterator[Harness]:
    """A harness whose chores run."""
    with Harness(tmp_path, disk=disk) as harness:
        Housekeeping(harness.cluster).start_chores()
        yield harness


def alter(harness: Harness, kind: int, name: str, **values: str) -> None:
    """Set configs; underscores stand for dots."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig(
                name=key.replace("_", "."), config_operation=0, value=value
            )
            for key, value in values.items()
        ],
    )
    (response,) = harness.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert response.error_code == ErrorCode.NONE, response


def start_of(harness: Harness, topic: str = "t") -> int:
    return harness.partition(topic).log.log_start_offset


def produce_old(harness: Harness, topic: str = "t", *, age_ms: int = 0) -> None:
    """A record, and a segment that ends after it."""
    harness.produce(topic, "v", timestamp=harness.clock.wall_ms() - age_ms)
    harness.partition(topic).log.roll_segment_if_used()


# --- retention --------------------------------------------------------------------------------------------------------


def test_old_segments_are_deleted_after_the_initial_delay_and_at_each_interval(kept: Harness) -> None:
    kept.create_topic("t", retention_ms="1000")
    produce_old(kept, age_ms=2000)
    kept.clock.advance(INITIAL_DELAY_MS - 1)
    assert start_of(kept) == 0
    kept.clock.advance(1)
    assert start_of(kept) == 1
    produce_old(kept, age_ms=2000)
    kept.clock.advance(RETENTION_CHECK_MS - 1)
    assert start_of(kept) == 1
    kept.clock.advance(1)
    assert start_of(kept) == 2


def test_changed_topic_and_broker_settings_take_effect_at_the_next_check(kept: Harness) -> None:
    for topic in ("own", "broker"):
        kept.create_topic(topic)
        produce_old(kept, topic)
        produce_old(kept, topic)
    kept.clock.advance(INITIAL_DELAY_MS)
    assert (start_of(kept, "own"), start_of(kept, "broker")) == (0, 0)
    alter(kept, TOPIC, "own", retention_bytes="1")
    alter(kept, BROKER, "", log_retention_ms="1000")
    alter(kept, TOPIC, "own", retention_ms="-1")
    kept.clock.advance(RETENTION_CHECK_MS)
    assert (start_of(kept, "own"), start_of(kept, "broker")) == (1, 2)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 7 * DAY_MS),
        ({"log.retention.hours": "48"}, 2 * DAY_MS),
        ({"log.retention.hours": "48", "log.retention.minutes": "1440"}, DAY_MS),
        ({"log.retention.hours": "48", "log.retention.minutes": "1440", "log.retention.ms": "77"}, 77),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-5"}, -1),
    ],
)
def test_retention_is_configured_in_milliseconds_minutes_or_hours(
    tmp_path: Path, settings: dict[str, str], retention_ms: int
) -> None:
    with Harness(tmp_path, settings=settings) as harness:
        harness.create_topic("t")
        assert harness.partition("t").log.settings.retention_ms == retention_ms


def test_a_waiting_fetch_is_answered_when_its_records_are_deleted(kept: Harness) -> None:
    kept.create_topic("t", retention_ms="1000")
    produce_old(kept)
    asked = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchRequest.FetchTopic(topic="t", partitions=[asked])]
    waiting = kept.request(FetchRequest(max_wait_ms=10**9, min_bytes=1 << 19, max_bytes=1 << 20, topics=topics), 12)
    assert isinstance(waiting, Waiting)
    kept.clock.advance(INITIAL_DELAY_MS)
    (answer,) = waiting.response().responses[0].partitions
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_housekeeping_leaves_compacted_logs_to_the_cleaner(kept: Harness) -> None:
    kept.create_topic("t", retention_ms="1000", cleanup_policy="compact,delete")
    kept.produce_batch("t", bytes(build_batch([Record(0, kept.clock.wall_ms() - 2000, b"k", b"v", ())])))
    kept.partition("t").log.roll_segment_if_used()
    kept.clock.advance(INITIAL_DELAY_MS)
    assert start_of(kept) == 0


def test_segments_that_cannot_be_deleted_are_logged_and_retried(
    kept: Harness, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    for topic in ("bad", "good"):
        kept.create_topic(topic, retention_ms="1000")
        produce_old(kept, topic)
    disk.failing, disk.suffix = {"rename"}, "bad-0/00000000000000000000.log.deleted"
    kept.clock.advance(INITIAL_DELAY_MS)
    assert len(kept.partition("bad").log.segments) == 2
    assert len(kept.partition("good").log.segments) == 1
    assert "bad-0: old segments stay: KAFKA_STORAGE_ERROR" in caplog.text
    disk.failing = set()
    kept.clock.advance(RETENTION_CHECK_MS)
    assert len(kept.partition("bad").log.segments) == 1


# --- flushing ---------------------------------------------------------------------------------------------------------


def recovery_point(harness: Harness, topic: str = "t") -> int:
    return harness.partition(topic).log.recovery_point


def test_appended_batches_are_flushed_after_flush_ms(kept: Harness) -> None:
    kept.create_topic("t", flush_ms="500")
    kept.create_topic("never")
    kept.clock.advance(INITIAL_DELAY_MS)
    for topic in ("t", "never"):
        kept.produce(topic, "v")
    kept.clock.advance(500)
    assert (recovery_point(kept), recovery_point(kept, "never")) == (1, 0)
    kept.produce("t", "v")
    kept.clock.advance(499)
    assert recovery_point(kept) == 1
    kept.clock.advance(1)
    assert recovery_point(kept) == 2


def test_a_log_that_has_not_grown_is_not_flushed_again(kept: Harness) -> None:
    kept.create_topic("t", flush_ms="500")
    kept.produce("t", "v")
    kept.clock.advance(INITIAL_DELAY_MS)
    kept.clock.holds_aside = True
    kept.clock.advance(500)
    kept.clock.do_aside()  # what the checkpoints brought up
    kept.clock.advance(900)
    assert kept.clock.do_aside() == 0


def test_a_changed_flush_ms_takes_effect_immediately(kept: Harness) -> None:
    kept.create_topic("t")
    kept.produce("t", "v")
    kept.clock.advance(INITIAL_DELAY_MS)
    assert recovery_point(kept) == 0
    alter(kept, TOPIC, "t", flush_ms="100")
    kept.clock.advance(1000)
    assert recovery_point(kept) == 1


def test_logs_are_checked_at_the_brokers_configured_interval(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"log.flush.scheduler.interval.ms": "7000"}) as harness:
        harness.create_topic("t", flush_ms="10")
        harness.create_topic("default")
        Housekeeping(harness.cluster).start_chores()
        harness.clock.advance(INITIAL_DELAY_MS)
        for topic in ("t", "default"):
            harness.produce(topic, "v")
        harness.clock.advance(6999)
        assert (recovery_point(harness), recovery_point(harness, "default")) == (0, 0)
        harness.clock.advance(1)
        assert (recovery_point(harness), recovery_point(harness, "default")) == (1, 1)


def test_an_offline_log_is_skipped(kept: Harness, disk: FailingDisk) -> None:
    kept.create_topic("t", flush_ms="100", retention_ms="1000")
    kept.produce("t", "v")
    disk.failing = {"sync"}
    kept.clock.advance(INITIAL_DELAY_MS)
    assert not kept.partition("t").log.is_open_and_online
    disk.failing = set()
    kept.clock.advance(RETENTION_CHECK_MS)
    assert (recovery_point(kept), start_of(kept)) == (0, 0)


# --- checkpoints and producers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "checkpoint", "line"),
    [
        ("log.flush.offset.checkpoint.interval.ms", "recovery-point-offset-checkpoint", "t 0 2"),
        ("log.flush.start.offset.checkpoint.interval.ms", "log-start-offset-checkpoint", "t 0 2"),
        ("replica.high.watermark.checkpoint.interval.ms", "replication-offset-checkpoint", "t 0 3"),
    ],
)
def test_checkpoints_are_written_at_their_interval(tmp_path: Path, setting: str, checkpoint: str, line: str) -> None:
    with Harness(tmp_path, settings={setting: "90000", "log.initial.task.delay.ms": "90000"}) as harness:
        Housekeeping(harness.cluster).start_chores()
        harness.clock.advance(90_000)
        harness.create_topic("t")
        harness.produce("t", "a", "b", "c")
        log = harness.partition("t").log
        log.flush()
        log.delete_records_before(2)
        path = tmp_path / "data" / checkpoint
        harness.clock.advance(89_999)
        assert line not in path.read_text().splitlines()
        harness.clock.advance(1)
        assert line in path.read_text().splitlines()


def test_a_checkpoint_interval_of_0_is_replaced_by_a_short_one(tmp_path: Path) -> None:
    settings = {"log.flush.offset.checkpoint.interval.ms": "0", "log.initial.task.delay.ms": "0"}
    with Harness(tmp_path, settings=settings) as harness:
        Housekeeping(harness.cluster).start_chores()
        harness.clock.advance(100)
        assert (tmp_path / "data" / "recovery-point-offset-checkpoint").exists()


def test_inactive_producers_expire(kept: Harness) -> None:
    kept.create_topic("t")
    kept.produce("t", "v", timestamp=kept.clock.wall_ms(), producer_id=7, producer_epoch=0, base_sequence=0)
    producers = kept.partition("t").log.producers
    kept.clock.advance(DAY_MS - 600_000)
    assert len(producers) == 1
    alter(kept, BROKER, "", producer_id_expiration_ms="1000")
    kept.clock.advance(600_000)
    assert len(producers) == 0


@pytest.mark.parametrize("delay_ms", ["0", "900000"])
def test_inactive_producers_are_checked_from_the_first_interval_on(tmp_path: Path, delay_ms: str) -> None:
    settings = {
        "log.initial.task.delay.ms": delay_ms,
        "producer.id.expiration.ms": "100",
        "producer.id.expiration.check.interval.ms": "50000",
    }
    with Harness(tmp_path, settings=settings) as harness:
        Housekeeping(harness.cluster).start_chores()
        harness.create_topic("t")
        now_ms = harness.clock.wall_ms()
        harness.produce("t", "v", timestamp=now_ms, producer_id=7, producer_epoch=0, base_sequence=0)
        harness.clock.advance(49_999)
        assert len(harness.partition("t").log.producers) == 1
        harness.clock.advance(1)
        assert len(harness.partition("t").log.producers) == 0


# --- delegation tokens ----------------------------------------------------------------------------


def test_expired_delegation_tokens_are_removed_at_each_interval(tmp_path: Path) -> None:
    key = {"delegation.token.secret.key": "a key", "delegation.token.expiry.check.interval.ms": "1000"}
    alice = Principal("User", "alice")
    with Harness(tmp_path, settings=key) as harness:
        Housekeeping(harness.cluster).start_chores()
        first, second = (
            issue_token(harness.cluster, alice, alice, (), lifetime_ms).token_id for lifetime_ms in (1, 1500)
        )
        tokens = harness.cluster.image.tokens.by_id
        harness.clock.advance(999)
        assert list(tokens) == [first, second]
        harness.clock.advance(1)
        assert list(tokens) == [second]
        harness.clock.advance(1000)
        assert list(tokens) == []


def test_a_token_that_cannot_be_removed_is_logged_and_removed_later(
    tmp_path: Path, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    alice = Principal("User", "alice")
    with Harness(tmp_path, settings={"delegation.token.secret.key": "a key"}, disk=disk) as harness:
        Housekeeping(harness.cluster).start_chores()
        issue_token(harness.cluster, alice, alice, (), 1)
        harness.clock.advance(10)
        disk.failing = {"write"}
        harness.clock.advance(HOUR_MS)
        assert len(harness.cluster.image.tokens.by_id) == 1
        assert "stays" in caplog.text
