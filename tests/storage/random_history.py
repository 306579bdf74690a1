"""One random history of a log on a disk that fails: its steps, and how likely each is. `simulation` runs many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.records.batch import BatchHeader, check_batch
from minibroker.protocol.records.building import build_batch
from minibroker.storage import log_end as log_module
from minibroker.storage.checkpoints.checkpoint_texts import CLEANER_OFFSET_CHECKPOINT
from minibroker.storage.compaction.batch_reading import UncleanableLog
from minibroker.storage.compaction.cleaning import CleaningAborted, CleaningThrottle, LogCleaning
from minibroker.storage.compaction.dirtiness import measure_dirtiness
from minibroker.storage.compaction.rewriting import CleaningLimits, SyncFailed
from minibroker.storage.directories.log_directory import OFFSET_CHECKPOINTS, LogDirectory
from minibroker.storage.environment import Done, Environment, run_work_at_once
from minibroker.storage.log import Log
from minibroker.storage.pending import PendingBatches
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch
from minibroker.storage.recovery.failed_sync import FAILED_SYNC
from minibroker.storage.recovery.recovery import LogDirectoryError
from tests.storage.compacted_promises import CompactedPromises
from tests.storage.faulty_disk import Crash, FaultyDisk
from tests.storage.promises import Promises
from tests.storage.random_contents import random_records, random_settings
from tests.storage.support import CLUSTER_ID, NOW_MS

KEY = "orders", 0
LOG = "/data/orders-0"
STEPS = 60
IDEMPOTENT = (7, 8)
TRANSACTIONAL = (9, 10)
PRODUCERS = (*IDEMPOTENT, *TRANSACTIONAL)
LIMITS = CleaningLimits(keys_bytes=4096, load_factor=0.9, buffer_bytes=1024)
FAULTS = ("read", "write", "truncate", "sync", "open", "create", "rename", "remove")


class Simulation:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.steps: list[str] = []
        self.counts: Counter[str] = Counter()
        self.now_ms = NOW_MS
        self.disk = FaultyDisk(self.random, lambda: self.now_ms)
        self.settings = random_settings(self.random)
        self.topic_number = 1
        self.leader_epoch = 0
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.promises = CompactedPromises() if "compact" in self.settings.cleanup_policy else Promises()
        self.record_number = 0
        self.cleaned_end = 0  # no cleaning has gone beyond
        self._forget_process()

    def _forget_process(self) -> None:
        self.aside: list[tuple[Callable[[], None], Done]] = []
        self.scheduled: list[Callable[[], None]] = []
        self.cleaning: LogCleaning | None = None
        self.is_written = False  # what the cleaning has written waits to be swapped in
        self.pending: PendingBatches | None = None
        self.pending_count = 0

    # --- a process that runs ------------------------------------------------------------------------

    def run(self) -> None:
        """Raises `AssertionError` where a promise is not kept."""
        self.start()
        for _ in range(STEPS):
            step = self.random.choices(*zip(*STEPS_AND_WEIGHTS, strict=True))[0]
            self.steps.append(step.__name__)
            try:
                step(self)
                self.counts[step.__name__] += 1
            except (KafkaError, OSError) as error:
                self.steps.append(f"  {error}")
                assert self.disk.failures
                assert isinstance(error, OSError) or error.code == ErrorCode.KAFKA_STORAGE_ERROR
            except Crash:
                self.steps.append("  (killed)")
                self.counts["killed at an operation"] += 1
                self.start_after(self.disk.heal)
            if not self.log.is_open_and_online:
                self.counts["offline"] += 1
                self.start_after(self.random.choice((self.disk.heal, self.disk.cut_power)))
        self.heal()
        self.promises.check_open(self.log)
        self.start_after(self.disk.cut_power)

    def start(self) -> None:
        """Start a process on what the disk holds, and compare."""
        self._open()
        self.counts["recovery"] += not self.directory.clean
        self.counts["end lost"] += self.log.log_end_offset < self.promises.end
        self.promises.check_start(self.log)
        self._count_sequences()

    def _open(self) -> None:
        environment = Environment(
            self.disk,
            lambda: self.now_ms,
            lambda _, callback: self.scheduled.append(callback),
            self._aside,
            self.random,
        )
        self.directory = LogDirectory(environment, "/data")
        self.directory.create_and_lock()
        self.directory.open(1, CLUSTER_ID, lambda: "w5vfbY-LQWCgOIYhBGbkUg")
        if KEY in self.directory.list_logs():
            was_noted = self.disk.holds(f"{LOG}/{FAILED_SYNC}")
            self.log: Log = self.directory.open_log(*KEY, self.settings)
            if was_noted:
                self.disk.doubtful.clear()
            if self.log.topic_id == bytes(16):
                self.directory.assign_topic_id(self.log, self._topic_id())
        else:
            self.log = self.directory.create_log(*KEY, self._topic_id(), self.settings)

    def _topic_id(self) -> bytes:
        return self.topic_number.to_bytes(16, "big")

    def _count_sequences(self) -> None:
        """Producers go on after what the log still knows of them."""
        known = dict(self.log.producers.iterate_entries())
        self.sequences = {
            producer: known[producer].batches[-1][1] + 1 if producer in known and known[producer].batches else 0
            for producer in PRODUCERS
        }

    def _aside(self, work: Callable[[], None], done: Done) -> None:
        self.aside.append((work, done))

    def start_after(self, end: Callable[[], None]) -> None:
        """The process has ended, the disk gets to know how, and another process starts, perhaps not at once."""
        self.counts["killed while batches were pending"] += self.pending is not None
        self.disk.heal()
        if self.is_in_doubt():
            end = self.disk.cut_power
        if end == self.disk.cut_power:
            self.steps.append("  (power cut)")
            self.promises.power_was_cut()
        else:
            self.promises.was_killed(was_trimmed=self._is_trimmed())
        self._forget_process()
        end()
        if self.random.random() < 0.2:
            self._start_fails()
        self.start()

    def _is_trimmed(self) -> bool:
        path, size_bytes = f"{self.log.segments[-1].path}.log", self.log.segments[-1].size_bytes
        return not self.disk.holds(path) or self.disk.size_bytes(path) == size_bytes

    def is_in_doubt(self) -> bool:
        """Whether a sync of the log has failed, and not even that could be noted: then the machine must restart."""
        noted = self.disk.holds(f"{LOG}/{FAILED_SYNC}")
        return not noted and any(path.startswith(f"{LOG}/") for path in self.disk.doubtful)

    def _start_fails(self) -> None:
        """A start that is itself killed, or that the disk does not allow: the next one copes with what it left."""
        self.steps.append("  (a start that fails)")
        self.counts["failed start"] += 1
        if self.random.random() < 0.5:
            self.disk.lifetime = self.random.randrange(20)
        else:
            self.disk.failing, self.disk.failure_rate = set(self.random.sample(FAULTS, 2)), 0.3
        with suppress(Crash, LogDirectoryError, KafkaError):
            self._open()
        self._forget_process()
        self.disk.heal()

    # --- steps --------------------------------------------------------------------------------------

    def append(self) -> None:
        """A batch of records, or the marker that ends a transaction."""
        self.now_ms += self.random.choice((0, 1, 10, 60, -5))
        data = self._data()
        self._append_config_changes(data, check_batch(data))
        if self.log.log_end_offset >= self.log.flush_at:
            self.flush()

    def _data(self) -> bytearray:
        producer = self.random.choice((None, *PRODUCERS))
        if producer in self.log.producers.open_transactions and self.random.random() < 0.5:
            committed = self.random.random() < 0.5
            self.counts["commit" if committed else "abort"] += 1
            return make_marker_batch(producer, 0, TransactionMarker(committed, 0), self.now_ms)
        return self._batch(producer)

    def _batch(self, producer: int | None) -> bytearray:
        timestamps = self.now_ms, self.now_ms, self.now_ms - 30, -1
        records, compression = random_records(self.random, timestamps, self.record_number)
        self.record_number += len(records)
        if producer is None:
            return build_batch(records, compression=compression)
        return build_batch(
            records,
            compression=compression,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
            transactional=producer in TRANSACTIONAL,
        )

    def _append_config_changes(self, data: bytearray, header: BatchHeader) -> None:
        has_sequences = header.producer_id >= 0 and not header.is_control
        assert not has_sequences or self.log.producers.check_epoch_and_sequence(header) is None
        self.promises.attempted(data, self.log.log_end_offset, self.leader_epoch)
        last_segment = self.log.segments[-1]
        try:
            self.log.append(data, (header,), self.leader_epoch)
        except KafkaError:
            self.promises.refused()
            raise
        self.promises.acknowledged()
        self.counts["segment begun by an append"] += self.log.segments[-1] is not last_segment
        if has_sequences:
            self.sequences[header.producer_id] += header.last_offset_delta + 1

    def turn(self) -> None:
        """Several batches of one turn of the loop: they are written together, at its end or earlier, or lost."""
        limit, log_module.MAX_PENDING_BYTES = log_module.MAX_PENDING_BYTES, self.random.choice((500, 2000))  # type: ignore[misc]
        self.now_ms += self.random.choice((0, 1, 10, 60, -5))
        try:
            for _ in range(self.random.randint(2, 10)):
                self._append_soon()
                if self.random.random() < 0.1:
                    self.random.choice((self.roll, self.other_thread, self.flush, self.break_disk))()
                    self._note_pending()
            if self.random.random() < 0.3:
                self.random.choice((self.break_disk, self._killed_in_the_write))()
            self.log.write_pending_batches()
        finally:
            log_module.MAX_PENDING_BYTES = limit  # type: ignore[misc]
            self._note_pending()
        if self.log.log_end_offset >= self.log.flush_at:
            self.flush()

    def _killed_in_the_write(self) -> None:
        self.disk.lifetime = 0

    def _append_soon(self) -> None:
        data = self._data()
        header = check_batch(data)
        has_sequences = header.producer_id >= 0 and not header.is_control
        assert not has_sequences or self.log.producers.check_epoch_and_sequence(header) is None
        self.promises.attempted(data, self.log.next_offset, self.leader_epoch)
        try:
            offset = self.log.append_to_pending_batches(data, header, self.leader_epoch)
            self._note_pending()
            if offset < 0:
                self.log.append(data, (header,), self.leader_epoch)
        except KafkaError:
            self._note_pending()
            self.promises.refused()
            raise
        self._note_pending()
        if offset < 0:
            self.promises.acknowledged()
        else:
            self.pending = self.log.pending_batches
            self.pending_count += 1
        if has_sequences:
            self.sequences[header.producer_id] += header.last_offset_delta + 1

    def _note_pending(self) -> None:
        """Note what has come of the batches that were pending, if that is known."""
        pending, count = self.pending, self.pending_count
        if pending is None or pending.headers:
            return
        self.pending, self.pending_count = None, 0
        if pending.failure is None:
            self.promises.acknowledged(count)
            self.counts["written together"] += count > 1
        else:
            self.promises.refused(count)
            self._count_sequences()
            self.counts["lost together"] += count > 1

    def several(self) -> None:
        for _ in range(self.random.randint(2, 12)):
            self.append()

    def flush(self) -> None:
        """Ask for a flush. Only the waiter's call promises that it has covered what was there."""
        promise = self.promises.promise_of_flush()

        def told(failure: KafkaError | None) -> None:
            self.counts["flush done" if failure is None else "flush failed"] += 1
            if failure is None:
                promise()

        self.log.flush_soon(told)

    def other_thread(self) -> None:
        """One of the things given to other threads is done."""
        if self.aside:
            run_work_at_once(*self.aside.pop(self.random.randrange(len(self.aside))))

    def other_threads(self) -> None:
        while self.aside:
            self.other_thread()

    def timers(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for callback in scheduled:
            callback()

    def roll(self) -> None:
        self.log.roll_segment_if_used()

    def change_leader(self) -> None:
        self.leader_epoch += 1

    def delete_records(self) -> None:
        offset = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.promises.may_begin_at(offset)
        self.log.delete_records_before(offset)
        self.promises.check_open(self.log)

    def retention(self) -> None:
        self.now_ms += self.random.choice((0, 100, 300))
        self.promises.may_begin_at(self.log.log_end_offset)
        self.counts["segment deleted"] += self.log.delete_old_segments()
        self.promises.check_open(self.log)

    def clean(self) -> None:
        """Go one step on with a cleaning, or begin one: the work of the other thread, or a swap in the loop's."""
        if "compact" not in self.settings.cleanup_policy:
            return
        try:
            self._clean()
        except (CleaningAborted, FileNotFoundError) as reason:  # the latter after a deletion
            self.steps.append(f"  {reason}")
            self.counts["cleaning given up"] += 1
            self.cleaning = None
        except SyncFailed as error:
            self.cleaning = None
            raise self.log.take_offline_after_sync_error(error) from error
        except (KafkaError, OSError):
            self.cleaning = None
            raise
        except UncleanableLog:  # a transaction index that could not be written whole
            assert self.disk.failures
            self.cleaning = None

    def _clean(self) -> None:
        if self.cleaning is None:
            dirt = measure_dirtiness(self.log, self.now_ms)
            if dirt.cleanable_bytes:
                throttle = CleaningThrottle(float("inf"), lambda: 0.0, lambda seconds: None)
                self.cleaning = LogCleaning(self.log, dirt, LIMITS, throttle, self.now_ms)
                self.cleaned_end = max(self.cleaned_end, dirt.end_offset)
                self.is_written = self.cleaning.clean_next_segment()
        elif self.is_written:
            self.is_written = False
            self.cleaning.replace_cleaned_segments()
            self.counts["segment swapped in"] += 1
            self.promises.check_open(self.log)
        elif not self.cleaning.clean_next_segment():
            self.cleaning.set_clean_offset()
            self.cleaning = None
            self.counts["cleaning done"] += 1
            self.directory.write_checkpoint_soon(CLEANER_OFFSET_CHECKPOINT)
        else:
            self.is_written = True

    def cleanings(self) -> None:
        for _ in range(5):
            self.clean()

    def truncate(self) -> None:
        if self.cleaned_end:
            return  # what was compacted all replicas have, and a cleaning goes by what came after it
        offset = self.random.randint(self.log.log_start_offset, self.log.log_end_offset)
        self.log.recovery_point = min(self.log.recovery_point, max(self.promises.batch_end_before(offset) - 1, 0))
        with suppress(OSError):
            self.directory.write_checkpoints(sync=True)
            self.promises.may_end_at(offset)
            self.log.truncate_to(offset)
            self.promises.ends_at(self.log.log_end_offset)
            self._count_sequences()

    def create_again(self) -> None:
        """The topic is deleted, and one of its name created, which inherits nothing, whatever a crash leaves."""
        if self.cleaning is not None:
            return
        self.directory.delete_log(self.log, f"{self.random.getrandbits(128):032x}")
        self.disk.settle("/data")  # or a power cut may bring the old log back, with or without its topic's id
        self.disk.doubtful = {path for path in self.disk.doubtful if not path.startswith(f"{LOG}/")}
        self.topic_number += 1
        self.promises = type(self.promises)()
        self.cleaned_end = 0
        self._maybe_other_work()
        try:
            self.log = self.directory.create_log(*KEY, self._topic_id(), self.settings)
        except LogDirectoryError:
            assert self.disk.failures
            self.start_after(self.disk.heal)
        self._count_sequences()

    def _maybe_other_work(self) -> None:
        """Do, maybe, what other threads and timers may do at any time."""
        for work in self.random.sample((self.timers, self.other_threads), self.random.randint(0, 2)):
            work()

    def checkpoint(self) -> None:
        self.directory.write_checkpoint_soon(self.random.choice(OFFSET_CHECKPOINTS))

    def look(self) -> None:
        self.promises.check_open(self.log)

    def break_disk(self) -> None:
        """Something about the disk fails from now on, for a while."""
        kind = self.random.choice(("full", "read-only", "sync", "errors", "errors"))
        self.steps.append(f"  {kind}")
        if kind == "full":
            self.disk.room_bytes = self.random.randrange(300)
        elif kind == "read-only":
            self.disk.read_only = True
        elif kind == "sync":
            self.disk.failing, self.disk.failure_rate = {"sync"}, 0.3
        else:
            self.disk.failing = set(self.random.sample(FAULTS, self.random.randint(1, 3)))
            self.disk.failure_rate = self.random.choice((0.2, 1.0))

    def heal(self) -> None:
        self.disk.heal()

    def soon_killed(self) -> None:
        self.disk.lifetime = self.random.randrange(15)

    def kill(self) -> None:
        self.start_after(self.disk.heal)

    def cut_power(self) -> None:
        self.start_after(self.disk.cut_power)

    def stop(self) -> None:
        """An orderly stop: all of it is then on the disk itself, if nothing fails."""
        self.other_threads()
        try:
            self.directory.close()
        except (KafkaError, OSError):
            assert self.disk.failures
            self.start_after(self.disk.heal)
            return
        self.promises.was_stopped()
        self._forget_process()
        self.random.choice((self.disk.heal, self.disk.cut_power))()
        self.start()


STEPS_AND_WEIGHTS: tuple[tuple[Callable[[Simulation], None], int], ...] = (
    (Simulation.append, 12),
    (Simulation.several, 3),
    (Simulation.turn, 8),
    (Simulation.flush, 6),
    (Simulation.other_thread, 8),
    (Simulation.other_threads, 3),
    (Simulation.timers, 2),
    (Simulation.roll, 2),
    (Simulation.change_leader, 2),
    (Simulation.delete_records, 2),
    (Simulation.retention, 2),
    (Simulation.truncate, 1),
    (Simulation.create_again, 1),
    (Simulation.clean, 4),
    (Simulation.cleanings, 3),
    (Simulation.checkpoint, 4),
    (Simulation.look, 2),
    (Simulation.break_disk, 2),
    (Simulation.heal, 4),
    (Simulation.soon_killed, 2),
    (Simulation.kill, 1),
    (Simulation.cut_power, 3),
    (Simulation.stop, 1),
)
