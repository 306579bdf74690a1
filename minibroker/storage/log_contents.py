"""What a log is put together from when it is opened.

Finding it on the disk, and recovering it, is `recovery.py`'s business; using it is the log's.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.storage.aborted_transactions import AbortedTransactions
from minibroker.storage.leader_epochs import LeaderEpochs
from minibroker.storage.producer_snapshots import ProducerSnapshots
from minibroker.storage.producer_state import ProducerStates
from minibroker.storage.segment import Segment


class LogContents(NamedTuple):
    """The parts of a log, found on the disk by `recovery.py`. There is at least one segment, oldest first.

    `synced` says that all of it, the indexes included, is known to be on the disk itself.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: ProducerSnapshots
    aborted: AbortedTransactions
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    synced: bool
