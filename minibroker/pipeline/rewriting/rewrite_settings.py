"""The settings of a rewriting, and how it rewrites a batch: drop it, change its codec, or encode its records again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from minibroker.pipeline.encode.batch_settings import BatchSettings, EncodeError
from minibroker.protocol.records.batch import DELETE_HORIZON_BIT, MAGIC, MAX_SEQUENCE, BatchHeader
from minibroker.protocol.records.compression import Compression

DEFAULT_BATCH_BYTES = 16384
UNBOUNDED_BYTES = 2**31 - 1


class RewriteError(Exception):
    """Why a directory cannot be rewritten, in one line."""


@dataclass(frozen=True)
class RewriteSettings:
    """The form of all batches, which have format 2. None leaves a property of each batch as it is.

    `level` is the codec's. Without `batch_bytes` each batch stays one batch, and messages of formats 0 and 1 are joined
    to batches of 16384 bytes. Raises `EncodeError`
    for contradicting settings.
    """

    codec: Compression | None = None
    level: int | None = None
    batch_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.codec is None:
            raise EncodeError("a level needs a codec")
        BatchSettings(self.codec or Compression.NONE, self.level)


class RewriteWay(Enum):
    """How a batch is rewritten."""

    COPY = "its bytes stay"
    RECODE = "its records stay as they are, under another codec"
    ALONE = "its records are one batch again"
    JOIN = "its records are batched again, with those of its neighbours"


class TargetForm(NamedTuple):
    """The form that one batch gets, and how."""

    way: RewriteWay
    codec: Compression


def choose_target_form(header: BatchHeader, settings: RewriteSettings) -> TargetForm:
    """Return the target of a batch by its header."""
    codec = Compression(header.compression) if settings.codec is None else settings.codec
    is_same = codec == header.compression and (settings.level is None or not codec)
    return TargetForm(_choose_rewrite_way(header, is_same, settings), codec)


def _choose_rewrite_way(header: BatchHeader, is_same: bool, settings: RewriteSettings) -> RewriteWay:
    if header.magic < MAGIC:
        return RewriteWay.JOIN if settings.batch_bytes or not header.compression else RewriteWay.ALONE
    if header.is_control or header.record_count == 0:
        return RewriteWay.COPY
    if settings.batch_bytes and not header.attributes & DELETE_HORIZON_BIT:
        return RewriteWay.JOIN
    return RewriteWay.COPY if is_same else RewriteWay.RECODE


class ProducerRun(NamedTuple):
    """What batches must share, beside their target, to be joined."""

    leader_epoch: int
    producer_id: int
    producer_epoch: int
    is_transactional: bool


def make_producer_run(header: BatchHeader, leader_epoch: int) -> ProducerRun:
    """Return what the batch shares with others. `leader_epoch` is its offset's; an old format does not have it."""
    epoch = header.partition_leader_epoch if header.magic == MAGIC else leader_epoch
    return ProducerRun(epoch, header.producer_id, header.producer_epoch, header.is_transactional)


def continues_sequence(before: BatchHeader, after: BatchHeader) -> bool:
    """Return whether the sequences of two batches of a run are as far apart as their offsets, as within one batch.

    This is not so if there was a marker, a batch that was compacted away, or another producer's record between them.
    """
    if before.producer_id < 0:
        return True
    if before.base_sequence < 0 or after.base_sequence < 0:
        return False
    distance = after.base_offset - before.base_offset
    return (after.base_sequence - before.base_sequence - distance) & MAX_SEQUENCE == 0
