"""What a writer raises, each in one line, and what Kafka's error codes mean to it: try again, begin anew, or stop.

How often and how long it tries again is the sender's.
"""

from __future__ import annotations

from typing import Final

from minibroker.pipeline.log_source import PipelineError
from minibroker.protocol.errors import ErrorCode

# Errors of Produce that pass: a leader is moving, replicas are behind, a disk failed, a batch was damaged on its way.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
# Of these the batch may have been written nevertheless.
UNCERTAIN: Final = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
# Another producer has the transactional id now, or the coordinator ended the transaction as it took too long.
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# The partition does not know what came before; without a transaction a new producer id begins anew.
SEQUENCE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class WriteFailed(PipelineError):
    """Rows could not be written; the message says which broker or partition said what."""


class RecordRefused(WriteFailed):
    """A row cannot become a record, or no broker takes it; the message names it."""


class Fenced(WriteFailed):
    """Somebody else writes under the same transactional id, or the transaction took too long and was aborted."""
