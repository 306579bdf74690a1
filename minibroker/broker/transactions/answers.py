"""The coordinator's error codes for clients, limited to those that their request version knows."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode, KafkaError


def code_for(error: KafkaError, knows_producer_fenced: bool) -> ErrorCode:
    """Return the error code for a client, which may be older than PRODUCER_FENCED (KIP-588)."""
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_producer_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
