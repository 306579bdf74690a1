"""Keys and values of the records in `__share_group_state`: the delivery states of share partitions (KIP-932).

A snapshot replaces everything that was recorded for its key before; updates follow it until the next one.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, Uuid, field, int8, int16, int32, int64


class ShareSnapshotKey(Message, api_key=0, versions="0"):
    """A share partition."""

    group_id: str = field()
    topic_id: Uuid = field()
    partition: int32 = field()


class ShareSnapshotValue(Message, api_key=0, versions="0", flexible="0+"):
    """Its whole state."""

    snapshot_epoch: int32 = field()
    state_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field(
        about="The first offset the group may still deliver; -1 if it has not been decided yet."
    )
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64 = field(about="When the state was first made.")
    write_timestamp: int64 = field(about="When this snapshot was written.")
    state_batches: list[StateBatch] = field()

    class StateBatch(Struct):
        first_offset: int64 = field()
        last_offset: int64 = field()
        delivery_state: int8 = field()
        delivery_count: int16 = field()


class ShareUpdateKey(Message, api_key=1, versions="0"):
    """A share partition."""

    group_id: str = field()
    topic_id: Uuid = field()
    partition: int32 = field()


class ShareUpdateValue(Message, api_key=1, versions="0", flexible="0+"):
    """What has changed; a start offset or leader epoch of -1 has not."""

    snapshot_epoch: int32 = field()
    leader_epoch: int32 = field()
    start_offset: int64 = field(about="The first offset the group may still deliver; -1 if it stays.")
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch] = field(about="The ranges of offsets that have changed.")

    class StateBatch(Struct):
        first_offset: int64 = field()
        last_offset: int64 = field()
        delivery_state: int8 = field()
        delivery_count: int16 = field()
