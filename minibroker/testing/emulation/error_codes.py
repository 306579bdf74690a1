"""The error codes of each release, and what it answered where today's releases answer with a newer code.

A release has all codes up to its highest. The source is the table `Errors` in each release's newest kafka-clients;
conformance/emulation compares this one with it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from minibroker.protocol.errors import ErrorCode
from minibroker.testing.emulation.releases import is_release_or_newer

# The highest code from each of these releases on.
LAST_CODE: Final[dict[str, ErrorCode]] = {
    "0.8.2": ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    "0.9": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "0.10.0": ErrorCode.UNSUPPORTED_VERSION,
    "0.10.1": ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    "0.10.2": ErrorCode.POLICY_VIOLATION,
    "0.11": ErrorCode.OPERATION_NOT_ATTEMPTED,
    "1.0": ErrorCode.REASSIGNMENT_IN_PROGRESS,
    "1.1": ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    "2.0": ErrorCode.LISTENER_NOT_FOUND,
    "2.1": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "2.2": ErrorCode.GROUP_MAX_SIZE_REACHED,
    "2.3": ErrorCode.FENCED_INSTANCE_ID,
    "2.4": ErrorCode.INVALID_RECORD,
    "2.5": ErrorCode.UNSTABLE_OFFSET_COMMIT,
    "2.7": ErrorCode.FEATURE_UPDATE_FAILED,
    "2.8": ErrorCode.INCONSISTENT_CLUSTER_ID,
    "3.0": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    "3.1": ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    "3.3": ErrorCode.NEW_LEADER_ELECTED,
    "3.5": ErrorCode.UNSUPPORTED_ASSIGNOR,
    "3.6": ErrorCode.STALE_MEMBER_EPOCH,
    "3.7": ErrorCode.INVALID_REGISTRATION,
    "3.8": ErrorCode.TRANSACTION_ABORTABLE,
    "3.9": ErrorCode.VOTER_NOT_FOUND,
    "4.0": ErrorCode.REBOOTSTRAP_REQUIRED,
    "4.1": ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    "4.4": ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
}
# By newer code, the code with which a release without it answered; for all other codes it was `OTHERWISE`.
BEFORE: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,  # KIP-467: its exception had this code before
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # KIP-112: as older clients get today
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,  # KIP-460
    ErrorCode.ELECTION_NOT_NEEDED: ErrorCode.NONE,  # KIP-460
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,  # KIP-588
}
OTHERWISE: Final = ErrorCode.UNKNOWN_SERVER_ERROR


@cache
def find_newest_error_code(release: str) -> ErrorCode:
    """Return the highest error code of a release."""
    return max(code for since, code in LAST_CODE.items() if is_release_or_newer(release, since))


def translate_error_code_to_release(release: str, code: int) -> int:
    """Return the code with which a release answered where today's answer with `code`."""
    if code <= find_newest_error_code(release):
        return code
    return translate_error_code_to_release(release, BEFORE.get(ErrorCode(code), OTHERWISE))
