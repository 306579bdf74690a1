"""Nothing is found in logs that our storage engine has written, whatever was done to them, stopped or killed."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.conversion import build_records_in_format
from minibroker.protocol.records.record import Record
from minibroker.storage.checkpoints.checkpoint_texts import format_offset_checkpoint, format_properties
from minibroker.storage.log import Log
from minibroker.storage.log_settings import LogSettings
from tests.pipeline.verifying.support import faults, judge
from tests.storage.compaction.support import clean
from tests.storage.support import NOW_MS, append, open_at, validate_records

SETTINGS = LogSettings(segment_bytes=1500, index_interval_bytes=150, file_delete_delay_ms=0, delete_retention_ms=500)
STEPS = 80
IDENTITY = {"version": "1", "node.id": "1", "cluster.id": "a cluster"}


class History:
    """A log to which much is done by chance. `compacted` ones are cleaned now and then."""

    def __init__(self, directory: Path, seed: int, *, compacted: bool, preallocate: bool) -> None:
        self.chance = Random(seed)
        self.directory = directory
        policy = frozenset({"compact" if compacted else "delete"})
        self.compacted = compacted
        self.settings = SETTINGS._replace(cleanup_policy=policy, preallocate=preallocate)
        self.log: Log = open_at(directory / "orders-0", self.settings)
        self.now_ms = NOW_MS
        self.leader_epoch = 0
        self.producers: dict[int, tuple[int, int]] = {}  # epoch and next sequence by id
        self.open: set[int] = set()
        self.next_id = 0

    def step(self) -> None:
        """One thing that happens to a log."""
        self.now_ms += self.chance.randrange(100)
        weights = {
            self.write: 8, self.write_old: 2, self.write_as_producer: 8, self.write_in_transaction: 10, self.end: 8,
            self.raise_epoch: 1, self.new_leader: 1, self.log.roll_segment_if_used: 1, self.restart: 1, self.crash: 1,
            self.delete_records: 1 if not self.compacted else 0, self.cut: 1, self.clean: 4 if self.compacted else 0,
        }  # fmt: skip
        self.chance.choices(list(weights), list(weights.values()))[0]()

    def records(self) -> list[Record]:
        count = self.chance.choice((1, 2, 3, 20))
        return [
            Record(
                timestamp=self.now_ms + self.chance.randrange(-50, 50),
                key=b"key %d" % self.chance.randrange(60),
                value=self.chance.choice((None, b"", b"value" * self.chance.randrange(12))),
                headers=self.chance.choice(((), (("name", b"1"), ("", None)))),
            )
            for _ in range(count)
        ]

    def write(self, records: list[Record] | None = None, **options: int | bool) -> None:
        batch = build_batch(records or self.records(), compression=self.chance.randrange(5), **options)  # type: ignore[arg-type]
        append(self.log, batch, self.leader_epoch)

    def write_old(self) -> None:
        magic, codec = self.chance.choice((0, 1)), self.chance.randrange(4)
        records = [record._replace(offset=place, headers=()) for place, record in enumerate(self.records())]
        data = memoryview(build_records_in_format(records, magic, compression=codec))
        self.log.update_settings(self.settings._replace(message_format_version=magic))
        self.log.append(*validate_records(self.log, data, api_version=2, now_ms=self.now_ms), self.leader_epoch)
        self.log.update_settings(self.settings)

    def producer(self) -> int:
        if len(self.producers) < 4:
            self.producers[self.next_id] = (self.chance.randrange(5), 0)
            self.next_id += 1
        return self.chance.choice(sorted(self.producers))

    def write_as_producer(self, *, transactional: bool = False) -> None:
        producer_id = self.producer()
        if not transactional and producer_id in self.open:
            return
        epoch, sequence = self.producers[producer_id]
        records = self.records()
        identity = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        self.write(records, transactional=transactional, **identity)
        self.producers[producer_id] = epoch, sequence + len(records)
        if transactional:
            self.open.add(producer_id)

    def write_in_transaction(self) -> None:
        self.write_as_producer(transactional=True)

    def end(self) -> None:
        if not self.open:
            return
        producer_id = self.chance.choice(sorted(self.open))
        self.open.remove(producer_id)
        epoch, _ = self.producers[producer_id]
        bumps = self.chance.random() < 0.5  # as from transaction version 2 on
        record = make_transaction_marker(
            committed=self.chance.random() < 0.5, coordinator_epoch=1, timestamp=self.now_ms
        )
        batch = build_batch(
            [record], producer_id=producer_id, producer_epoch=epoch + bumps, transactional=True, control=True
        )
        append(self.log, batch, self.leader_epoch)
        if bumps:
            self.producers[producer_id] = epoch + 1, 0

    def raise_epoch(self) -> None:
        producer_id = self.producer()
        if producer_id not in self.open:
            self.producers[producer_id] = self.producers[producer_id][0] + 1, 0

    def new_leader(self) -> None:
        self.leader_epoch += 1

    def clean(self) -> None:
        self.log.roll_segment_if_used()
        self.now_ms += self.chance.choice((0, 1000))
        clean(self.log, self.now_ms)

    def delete_records(self) -> None:
        self.log.delete_records_before(self.chance.randint(self.log.log_start_offset, self.log.last_stable_offset))

    def cut(self) -> None:
        """Cut the log, as a follower does whose leader has lost some; forget the producers, as they write no more."""
        offset = max(self.log.log_end_offset - self.chance.randrange(10), self.log.log_start_offset)
        self.log.truncate_to(max(offset, self.log.clean_offset))
        self.producers.clear()
        self.open.clear()

    def restart(self) -> None:
        self.log.close()
        self.reopen(clean=True)

    def crash(self) -> None:
        self.log.close_without_flush()
        self.check()
        self.reopen(clean=False)

    def reopen(self, *, clean: bool) -> None:
        old = self.log
        self.log = open_at(
            self.directory / "orders-0",
            self.settings,
            clean=clean,
            recovery_point=old.recovery_point,
            log_start_offset=old.log_start_offset,
        )
        self.log.clean_offset = old.clean_offset

    def check(self) -> None:
        """Verify the directory, with the checkpoints that a broker writes."""
        log = self.log
        offsets = {
            "cleaner-offset-checkpoint": log.clean_offset,
            "log-start-offset-checkpoint": log.log_start_offset,
            "recovery-point-offset-checkpoint": min(log.recovery_point, log.log_end_offset),
            "replication-offset-checkpoint": log.log_end_offset,
        }
        if self.settings.preallocate:
            del offsets["cleaner-offset-checkpoint"]  # a crash came before it was written
        for name, offset in offsets.items():
            if offset or name != "cleaner-offset-checkpoint":
                (self.directory / name).write_bytes(format_offset_checkpoint({("orders", 0): offset}))
        (self.directory / "meta.properties").write_bytes(format_properties(IDENTITY, self.now_ms))
        found = faults(judge(self.directory, compacted=("orders",) if self.compacted else ()))
        assert found == []


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_valid_directory_has_no_findings_whatever_has_happened(seed: int, compacted: bool, tmp_path: Path) -> None:
    history = History(tmp_path, seed, compacted=compacted, preallocate=seed % 3 == 0)
    for step in range(STEPS):
        history.step()
        if step % 10 == 9:
            history.check()
    history.log.close()
    history.check()
