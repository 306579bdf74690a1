"""Which log is compacted when, on a clock that stands still and with work that is done aside when the test says so.

What a cleaning does to a log is tested in `tests/storage/compaction`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.clock import Done, Work
from minibroker.broker.upkeep.cleaner import LogCleaner, get_cleaning_limits
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction.thread_pauses import ThreadPauses
from minibroker.storage.log import Log
from tests.broker.harness import Harness
from tests.storage.support import FailingDisk, files_in, read_batches

BACKOFF_MS = 15_000


class Aside:
    """A thread of the cleaner's own: holds what it is given until `step`."""

    def __init__(self) -> None:
        self._held: list[tuple[Work, Done]] = []
        self._ended: list[tuple[Done, Exception | None]] = []

    def run(self, work: Work, done: Done) -> None:
        self._held.append((work, done))

    def work(self) -> int:
        """Do what is held, without anybody being told; how many there were."""
        held, self._held = self._held, []
        for work, done in held:
            error = None
            try:
                work()
            except Exception as raised:
                error = raised
            self._ended.append((done, error))
        return len(held)

    def step(self) -> int:
        """Do what is held, and tell; how many there were."""
        count = self.work()
        ended, self._ended = self._ended, []
        for done, error in ended:
            done(error)
        return count


class Compacting:
    """A harness with a cleaner."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.aside = Aside()
        self.waited_s = 0.0
        self.cleaner = LogCleaner(harness.cluster, self.aside.run, self._wait)

    def _wait(self, seconds: float) -> None:
        self.waited_s += seconds
        self.harness.clock.advance(seconds * 1000)

    def topic(self, name: str, rounds: int = 3, keys: int = 2, **configs: str) -> Log:
        """A compacted topic, each of whose keys was written in each of some closed segments."""
        self.harness.create_topic(name, **{"cleanup_policy": "compact", **configs})
        log = self.harness.partition(name).log
        for round_number in range(rounds):
            self.write(log, round_number, keys)
            log.roll_segment_if_used()
        return log

    def write(self, log: Log, number: int, keys: int = 2) -> None:
        made = [Record(0, self.harness.clock.wall_ms(), b"key%d" % key, b"value%d" % number, ()) for key in range(keys)]
        self.harness.produce_batch(log.topic, bytes(build_batch(made)))

    def run(self) -> None:
        """Let everything happen that can without time passing."""
        self.harness.clock.advance(0)
        while self.aside.step():
            self.harness.clock.advance(0)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


@pytest.fixture
def compacting(tmp_path: Path, disk: FailingDisk) -> Iterator[Compacting]:
    with Harness(tmp_path, disk=disk) as harness:
        yield Compacting(harness)


def restarted(compacting: Compacting, **settings: str) -> Compacting:
    """The same data under other settings; underscores stand for dots."""
    compacting.harness.restart(settings={name.replace("_", "."): value for name, value in settings.items()})
    return Compacting(compacting.harness)


def alter(compacting: Compacting, name: str, value: str) -> None:
    """Set a setting of all brokers, as a client does."""
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="")
    resource.configs = [resource.AlterableConfig(name=name, config_operation=0, value=value)]
    (answer,) = compacting.harness.request(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == ErrorCode.NONE, answer


def values(log: Log) -> list[bytes | None]:
    return [record.value for data in read_batches(log) for record in iterate_records_of_batch(data)]


def test_a_dirty_log_is_compacted_at_startup_and_logged(compacting: Compacting, tmp_path: Path) -> None:
    log = compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.run()
    assert values(log) == [b"value2", b"value2"]
    assert compacting.cleaner.statistics.cleanings == 1
    assert files_in(tmp_path / "data")["cleaner-offset-checkpoint"] == b"0\n1\nt 0 6\n"


def test_a_cleaning_checks_repeatedly_whether_the_event_loop_is_busy(
    compacting: Compacting, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    monkeypatch.setattr(ThreadPauses, "sleep_if_due", lambda pauses: looked.append(pauses._loop_seconds()))
    compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.run()
    assert len(looked) >= 4, "for the keys of a batch, and for what is kept of it"
    assert 0 < looked[0] <= looked[-1] < time.process_time()


def test_a_clean_log_is_not_compacted_again_until_it_is_dirty(compacting: Compacting) -> None:
    log = compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.run()
    for number in range(3, 7):
        compacting.write(log, number)
        log.roll_segment_if_used()
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 1
    compacting.harness.clock.advance(BACKOFF_MS)
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 2
    assert values(log) == [b"value6", b"value6"]


def test_the_cleaner_continues_where_it_was_after_a_restart(compacting: Compacting) -> None:
    compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.run()
    again = restarted(compacting)
    again.cleaner.start_checks()
    again.run()
    assert again.cleaner.statistics.cleanings == 0
    assert again.harness.partition("t").log.clean_offset == 6


def test_topics_without_compaction_are_not_cleaned(compacting: Compacting) -> None:
    log = compacting.topic("t", cleanup_policy="delete")
    compacting.cleaner.start_checks()
    compacting.run()
    assert len(values(log)) == 6


def test_a_log_with_both_policies_is_compacted(compacting: Compacting) -> None:
    log = compacting.topic("t", cleanup_policy="compact,delete")
    compacting.cleaner.start_checks()
    compacting.run()
    assert len(values(log)) == 2


def test_a_log_whose_cleanup_policy_changes_to_compact_is_compacted(compacting: Compacting) -> None:
    log = compacting.topic("t", cleanup_policy="delete")
    compacting.cleaner.start_checks()
    compacting.run()
    log.update_settings(log.settings._replace(cleanup_policy=frozenset({"compact"})))
    compacting.harness.clock.advance(BACKOFF_MS)
    compacting.run()
    assert len(values(log)) == 2


def test_a_log_below_the_dirty_ratio_waits_for_the_maximum_lag(compacting: Compacting) -> None:
    log = compacting.topic("t", min_cleanable_dirty_ratio="1", max_compaction_lag_ms="100000")
    compacting.cleaner.start_checks()
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 0
    compacting.harness.clock.advance(100_000 + BACKOFF_MS)
    compacting.run()
    assert len(values(log)) == 2


def test_the_dirtiest_log_is_cleaned_first(compacting: Compacting) -> None:
    clean = compacting.topic("clean")
    compacting.cleaner.start_checks()
    compacting.run()
    dirty = compacting.topic("dirty")
    compacting.write(clean, 9, keys=20)
    clean.roll_segment_if_used()
    compacting.harness.clock.advance(BACKOFF_MS)
    assert compacting.aside.step() == 1
    compacting.harness.clock.advance(0)
    assert compacting.aside.step() == 1
    assert (dirty.clean_offset, clean.clean_offset) == (6, 6)
    compacting.run()
    assert clean.clean_offset == 26


@pytest.mark.parametrize("threads", [1, 2])
def test_each_cleaner_thread_cleans_one_log_at_a_time(compacting: Compacting, threads: int) -> None:
    compacting = restarted(compacting, log_cleaner_threads=str(threads))
    for name in ("a", "b", "c"):
        compacting.topic(name)
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    assert compacting.aside.step() == threads
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 3


def test_the_cleaner_can_be_disabled(compacting: Compacting) -> None:
    compacting = restarted(compacting, log_cleaner_enable="false")
    log = compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(10 * BACKOFF_MS)
    compacting.run()
    assert len(values(log)) == 6


def test_a_shorter_cleaner_backoff_takes_effect_within_a_second(compacting: Compacting) -> None:
    compacting = restarted(compacting, log_cleaner_backoff_ms="86400000")
    compacting.cleaner.start_checks()
    compacting.run()
    log = compacting.topic("t")
    alter(compacting, "log.cleaner.backoff.ms", "0")
    compacting.harness.clock.advance(1000)
    compacting.run()
    assert len(values(log)) == 2


def test_cleaner_threads_share_the_dedupe_buffer(compacting: Compacting) -> None:
    settings = {"log_cleaner_threads": "4", "log_cleaner_dedupe_buffer_size": str(8 << 20)}
    compacting = restarted(compacting, **settings, log_cleaner_io_buffer_load_factor="0.5")
    limits = get_cleaning_limits(compacting.harness.cluster.settings)
    assert limits == (2 << 20, 0.5, 64 << 10)


def test_the_cleaner_io_rate_is_limited_and_can_be_changed(compacting: Compacting) -> None:
    compacting = restarted(compacting, log_cleaner_io_max_bytes_per_second="100")
    log = compacting.topic("t")
    size = log.size_bytes
    compacting.cleaner.start_checks()
    compacting.run()
    assert compacting.waited_s >= size / 100
    before = compacting.waited_s
    alter(compacting, "log.cleaner.io.max.bytes.per.second", "1e9")
    for number in range(3, 7):
        compacting.write(log, number)
        log.roll_segment_if_used()
    compacting.harness.clock.advance(BACKOFF_MS)
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 2
    assert compacting.waited_s == before


def test_another_io_rate_takes_effect_during_a_cleaning(compacting: Compacting) -> None:
    log = compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    alter(compacting, "log.cleaner.io.max.bytes.per.second", "100")
    compacting.harness.clock.advance(1000)
    size = log.size_bytes
    compacting.run()
    assert compacting.waited_s >= size / 100


def test_another_thread_count_takes_effect_during_a_cleaning(compacting: Compacting) -> None:
    for name in ("a", "b"):
        compacting.topic(name)
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    alter(compacting, "log.cleaner.threads", "2")
    compacting.harness.clock.advance(1000)
    assert compacting.aside.step() == 2


def test_deleted_or_reconfigured_dirty_logs_are_not_cleaned(compacting: Compacting) -> None:
    compacting.topic("a", rounds=9)
    gone, kept = compacting.topic("b", rounds=5), compacting.topic("c")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    compacting.harness.cluster.controller.delete_topic(compacting.harness.partition("b").topic)
    kept.update_settings(kept.settings._replace(cleanup_policy=frozenset({"delete"})))
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 1
    assert (gone.clean_offset, kept.clean_offset) == (0, 0)


def test_old_segments_of_compacted_logs_are_deleted_except_during_a_cleaning(
    compacting: Compacting,
) -> None:
    log = compacting.topic("t", cleanup_policy="compact,delete", retention_ms="1000")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    compacting.harness.clock.advance(BACKOFF_MS)
    assert log.log_start_offset == 0
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 1
    assert log.log_start_offset == 6


def test_appends_during_a_cleaning_are_kept(compacting: Compacting) -> None:
    log = compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    compacting.write(log, 7)
    compacting.aside.step()
    compacting.write(log, 8)
    compacting.run()
    assert values(log) == [b"value2"] * 2 + [b"value7"] * 2 + [b"value8"] * 2


def test_a_topic_recreated_during_a_cleaning_is_not_touched(compacting: Compacting, tmp_path: Path) -> None:
    compacting.topic("t")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    compacting.aside.work()
    controller = compacting.harness.cluster.controller
    controller.delete_topic(compacting.harness.partition("t").topic)
    log = compacting.topic("t", rounds=5)
    compacting.run()
    assert len(values(log)) == 10
    assert not [name for name in files_in(tmp_path / "data" / "t-0") if name.endswith((".cleaned", ".swap"))]
    compacting.harness.clock.advance(BACKOFF_MS)
    compacting.run()
    assert len(values(log)) == 2


def test_a_corrupt_log_is_reported_once_and_not_compacted(
    compacting: Compacting, caplog: pytest.LogCaptureFixture
) -> None:
    log, other = compacting.topic("t"), compacting.topic("other")
    path = Path(log.segments[1].path + ".log")
    data = bytearray(path.read_bytes())
    data[65] ^= 1
    path.write_bytes(data)
    compacting.cleaner.start_checks()
    for _ in range(3):
        compacting.run()
        compacting.harness.clock.advance(BACKOFF_MS)
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error.startswith(f"t-0 is not compacted any more: {path}: the batch at position 0, offset 2, cannot be read")
    assert compacting.cleaner.uncleanable_logs == {log}
    assert len(values(other)) == 2
    assert len(log.segments) == 4


def test_a_full_disk_is_retried_after_the_backoff(
    compacting: Compacting, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacting.topic("t")
    disk.room_bytes = 10
    compacting.cleaner.start_checks()
    compacting.run()
    disk.room_bytes = None
    assert "t-0 could not be compacted: [Errno 28] No space left on device" in caplog.text
    assert len(values(log)) == 6
    assert not compacting.cleaner.uncleanable_logs
    compacting.run()
    assert compacting.cleaner.statistics.cleanings == 0
    compacting.harness.clock.advance(BACKOFF_MS)
    compacting.run()
    assert len(values(log)) == 2


def test_a_failed_fsync_of_the_log_takes_it_offline(compacting: Compacting, disk: FailingDisk) -> None:
    log = compacting.topic("t")
    log.recovery_point = 0
    disk.failing, disk.suffix = {"sync"}, "00.log"
    compacting.cleaner.start_checks()
    compacting.run()
    disk.failing = set()
    assert log.offline
    assert len(log.segments) == 4


def test_a_failed_swap_ends_the_compaction_of_the_log(
    compacting: Compacting, disk: FailingDisk, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacting.topic("t")
    disk.failing, disk.suffix = {"rename"}, ".swap"
    compacting.cleaner.start_checks()
    compacting.run()
    disk.failing = set()
    assert compacting.cleaner.uncleanable_logs == {log}
    assert "t-0 is not compacted any more: KAFKA_STORAGE_ERROR" in caplog.text
    assert len(values(log)) == 6


def test_an_unexpected_exception_is_logged_with_its_traceback(
    compacting: Compacting, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = compacting.topic("t")

    def work(self: object) -> bool:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("minibroker.storage.compaction.cleaning.LogCleaning.clean_next_segment", work)
    compacting.cleaner.start_checks()
    compacting.run()
    assert compacting.cleaner.uncleanable_logs == {log}
    assert "Traceback" in caplog.text


def test_a_stop_cancels_the_current_cleaning_and_starts_no_other(compacting: Compacting, tmp_path: Path) -> None:
    log = compacting.topic("t")
    compacting.topic("other")
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    compacting.aside.work()
    compacting.cleaner.close()
    compacting.run()
    compacting.harness.clock.advance(10 * BACKOFF_MS)
    assert compacting.aside.step() == 0
    assert len(values(log)) == 6
    assert not [name for name in files_in(tmp_path / "data" / "t-0") if name.endswith((".cleaned", ".swap"))]


def test_the_statistics_count_cleanings_and_dirty_ratios(compacting: Compacting) -> None:
    log = compacting.topic("t")
    other = compacting.topic("other", min_cleanable_dirty_ratio="1")
    sizes = log.size_bytes
    now_ms = compacting.harness.clock.wall_ms()
    noted = compacting.cleaner.statistics
    compacting.cleaner.start_checks()
    compacting.harness.clock.advance(0)
    assert (noted.running, noted.max_dirty_ratio, noted.looked_ms) == (1, 1.0, now_ms)
    compacting.harness.clock.advance(250)
    compacting.aside.step()
    compacting.harness.clock.advance(0)
    compacting.harness.clock.advance(250)
    compacting.run()
    assert (noted.cleanings, noted.running) == (1, 0)
    assert noted.seconds == noted.last_seconds == 0.5
    assert (noted.read_bytes, noted.written_bytes) == (sizes, log.size_bytes)
    assert (noted.read_records, noted.written_records) == (6, 2)
    other.update_settings(other.settings._replace(cleanup_policy=frozenset({"delete"})))
    compacting.harness.clock.advance(BACKOFF_MS)
    assert (noted.max_dirty_ratio, noted.looked_ms) == (0.0, now_ms + 500 + BACKOFF_MS)


def test_a_failed_cleaning_is_counted_as_uncleanable(compacting: Compacting, disk: FailingDisk) -> None:
    log = compacting.topic("t")
    disk.failing, disk.suffix = {"rename"}, ".swap"
    compacting.cleaner.start_checks()
    compacting.run()
    disk.failing = set()
    noted = compacting.cleaner.statistics
    assert (noted.cleanings, noted.running, noted.uncleanable) == (0, 0, 1)
    assert noted.read_bytes == log.size_bytes
    compacting.harness.cluster.controller.delete_topic(compacting.harness.partition("t").topic)
    compacting.harness.clock.advance(BACKOFF_MS)
    assert noted.uncleanable == 0


def test_a_cleaning_is_logged_in_one_line_and_keyless_records_in_another(
    compacting: Compacting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "minibroker.cleaner")
    log = compacting.topic("t", cleanup_policy="delete")
    compacting.harness.produce("t", "no key")
    log.roll_segment_if_used()
    log.update_settings(log.settings._replace(cleanup_policy=frozenset({"compact"})))
    compacting.cleaner.start_checks()
    compacting.run()
    told = [record.getMessage() for record in caplog.records if record.name == "minibroker.cleaner"]
    assert told[0].startswith("t-0 is compacted up to offset 7: 4 segments became 1,")
    assert "2 of 7 records stay" in told[0]
    assert told[1:] == ["t-0: 1 records without a key were dropped"]
