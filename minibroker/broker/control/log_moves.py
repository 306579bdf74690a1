"""Moves of logs between log directories (KIP-113), one at a time, while clients read and append.

`log_copying` in storage copies. This file schedules the copying, replaces the log with its copy, and records the move.
A move that the end of the broker interrupts begins again at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.control.elections import return_live_replicas_to_isr
from minibroker.broker.metadata.partitions import Partition
from minibroker.protocol.errors import KafkaError
from minibroker.storage.directories.log_copying import TAIL_BYTES, LogCopy, Work
from minibroker.storage.directories.log_directory import OFFSET_CHECKPOINTS, LogDirectory
from minibroker.storage.recovery.recovery import LogDirectoryError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster

log = logging.getLogger("minibroker.moves")

FLUSH_WAIT_MS = 2  # how long to wait for a running flush of the log


class LogMove:
    """The move of a partition's log to `directory`; `copy` is the unfinished copy there."""

    def __init__(self, partition: Partition, directory: LogDirectory, unique: str) -> None:
        self.partition = partition
        self.directory = directory
        self.is_cancelled = False
        self.copy = LogCopy(
            partition.log, directory.make_future_log_path(partition.topic.name, partition.index, unique)
        )

    @property
    def is_obsolete(self) -> bool:
        """Return whether the move was cancelled, or the log was replaced or closed."""
        return self.is_cancelled or self.partition.log is not self.copy.log or not self.copy.log.is_open_and_online

    @property
    def offset_lag(self) -> int:
        """Return how many offsets the copy is behind the log."""
        return self.copy.log.log_end_offset - self.copy.end_offset


class LogMoves:
    """The moves of a cluster: the first one is running, the others wait."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._moves: dict[Partition, LogMove] = {}
        self._running: LogMove | None = None

    def start_log_move(self, partition: Partition, directory: LogDirectory) -> None:
        """Move the partition's log to `directory`; this replaces a move to another directory."""
        known = self._moves.get(partition)
        if known is not None and known.directory is directory and not known.is_obsolete:
            return
        self.cancel_log_move(partition)
        if self._cluster.logs.find_directory_of_log(partition.log) is directory:
            return
        self._moves[partition] = LogMove(partition, directory, self._make_unique_directory_suffix())
        self._run_next_move()

    def cancel_log_move(self, partition: Partition) -> None:
        """Cancel the partition's move, if there is one."""
        move = self._moves.pop(partition, None)
        if move is not None:
            move.is_cancelled = True

    def list_moves_to(self, directory: LogDirectory) -> list[LogMove]:
        """Return the moves to this directory."""
        return [move for move in self._moves.values() if move.directory is directory and not move.is_obsolete]

    def _make_unique_directory_suffix(self) -> str:
        return self._cluster.random.randbytes(16).hex()

    def _run_next_move(self) -> None:
        if self._running is not None:
            return
        self._running = next(iter(self._moves.values()), None)
        if self._running is not None:
            try:
                self._cluster.logs.disk.make_directory(self._running.copy.path)
            except OSError as error:
                self._fail_move(self._running, error)
                return
            self._copy_next_segment(self._running)

    def _copy_next_segment(self, move: LogMove) -> None:
        """Copy the next segment, or the whole rest if it is small."""
        copy = move.copy
        if move.is_obsolete:
            self._end_and_run_next_move(move)
            return
        segment = copy.find_segment_to_copy()
        if segment is not None:
            self._run_move_work_in_thread(
                move, copy.make_copy_work_of_segment(segment), partial(copy.record_copied_part_of_segment, segment)
            )
        elif (sync := copy.make_sync_work_of_segments()) is not None:
            self._run_move_work_in_thread(move, sync, lambda: None)
        elif copy.log.segments[-1].size_bytes > TAIL_BYTES:
            try:
                copy.log.roll_segment_if_used()
            except KafkaError as error:
                self._fail_move(move, error)
                return
            self._copy_next_segment(move)
        else:
            self._copy_tail_and_finish_move(move)

    def _run_move_work_in_thread(self, move: LogMove, work: Work, callback: Callable[[], None]) -> None:
        """Run `work` in another thread, then `callback`, and copy on; fail the move if its segment cannot be copied."""
        segment = move.copy.find_segment_to_copy()

        def continue_or_fail_move(error: Exception | None) -> None:
            if error is None:
                callback()
            elif (
                segment is None or segment is move.copy.find_segment_to_copy()
            ):  # otherwise it was deleted while it was copied
                self._fail_move(move, error)
                return
            self._copy_next_segment(move)

        self._cluster.clock.run_in_thread(work, continue_or_fail_move)

    # --- the last part --------------------------------------------------------------------------

    def _copy_tail_and_finish_move(self, move: LogMove) -> None:
        """Hold flushes and copy the rest, so that no record is acknowledged as synced that the copy lacks."""
        if move.is_obsolete:
            move.copy.log.flusher.release_held_flushes()
            self._end_and_run_next_move(move)
        elif move.copy.log.flusher.hold_back_flushes():
            self._cluster.clock.run_in_thread(
                move.copy.make_copy_work_of_tail(), partial(self._replace_log_or_copy_more, move)
            )
        else:
            self._cluster.clock.call_later(FLUSH_WAIT_MS, partial(self._copy_tail_and_finish_move, move))

    def _replace_log_or_copy_more(self, move: LogMove, error: Exception | None) -> None:
        """Replace the log if its copy is complete; else release the held flushes, and copy on or fail the move."""
        flusher = move.copy.log.flusher
        move.copy.log.write_pending_batches()  # so that the copy includes it
        if error is None and not move.is_obsolete and move.copy.is_almost_complete():
            try:
                self._replace_log_by_copy(move)
                return
            except OSError as failure:
                error = failure
        flusher.release_held_flushes()
        if error is not None and not move.copy.is_tail_gone_from_log:
            self._fail_move(move, error)
        else:
            self._copy_next_segment(move)

    def _replace_log_by_copy(self, move: LogMove) -> None:
        """Replace the log with the copy, within one turn of the loop, so that nothing is read or appended meanwhile."""
        cluster, partition, old = self._cluster, move.partition, move.copy.log
        move.copy.copy_last_appends()
        source = cluster.logs.find_directory_of_log(old)
        try:
            new = cluster.logs.replace_log_by_copy(
                move.copy, move.directory, partition.topic.settings, self._make_unique_directory_suffix()
            )
        except LogDirectoryError as error:
            old.take_offline(str(error))
            self._end_and_run_next_move(move)
            return
        partition.log = new
        if old.is_watermark_held:
            new.high_watermark = old.high_watermark
        partition.hold_high_watermark_while_under_min_isr()
        old.flusher.transfer_requests_to_successor(new.flusher)
        partition.wake_all_waiters()
        for checkpoint in OFFSET_CHECKPOINTS:
            move.directory.write_checkpoint_soon(checkpoint)
        log.info("%s has moved from %s to %s", partition, source.path, move.directory.path)
        try:
            return_live_replicas_to_isr(cluster, [partition])
        except KafkaError as error:
            log.warning("the metadata log could not record that %s has moved: %s", partition, error)
        conclusion = partial(
            cluster.logs.finish_log_move, source, move.directory, new, move.copy.list_unsynced_indexes()
        )
        cluster.clock.run_in_thread(conclusion, partial(self._finish_move_or_log_error, move))

    def _finish_move_or_log_error(self, move: LogMove, error: Exception | None) -> None:
        """End a move whose files were renamed, or log the error, with which the next start decides where the log is."""
        if error is not None:
            log.warning("the next start will check whether %s has moved: %s", move.partition, error)
        self._end_and_run_next_move(move)

    # --- the end --------------------------------------------------------------------------------

    def _fail_move(self, move: LogMove, error: Exception) -> None:
        """Log that the partition's log stays where it is, and begin the next move."""
        log.error("%s stays where it is: %s", move.partition, error)
        self._end_and_run_next_move(move)

    def _end_and_run_next_move(self, move: LogMove) -> None:
        """Remove the move and its copy, if any, and start the next move."""
        if self._cluster.logs.disk.exists(move.copy.path):
            move.directory.remove_directory_soon(move.copy.path)
        if self._moves.get(move.partition) is move:
            del self._moves[move.partition]
        self._running = None
        self._run_next_move()
