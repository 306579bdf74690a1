"""The errors of a writer, each in one line, and what Kafka's error codes mean to it: retry, start again, or stop."""

from __future__ import annotations

from typing import Final

from minibroker.pipeline.log_source import PipelineError
from minibroker.protocol.errors import ErrorCode

# With these the batch may have been written nevertheless.
UNCERTAIN: Final = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
# Another producer has the transactional id now, or the transaction took too long and was aborted.
FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# The partition does not know the earlier batches. Without a transaction, a new producer id solves this.
SEQUENCE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


class WriteFailed(PipelineError):
    """Rows could not be written. The message has the broker or partition, and its reason."""


class RecordRefused(WriteFailed):
    """A row cannot become a record, or no broker accepts it. The message names it."""


class Fenced(WriteFailed):
    """Another producer uses the transactional id, or the transaction took too long and was aborted."""
