"""The errors of a client, each a message of one line, and the client's reaction to each error code.

    Exception
     ├─ SettingError          an invalid setting
     ├─ ClientError           a request failed; its reaction says whether to retry
     └─ (below a request; a caller sees them as ClientError)
         ├─ ProtocolError         bytes that are not an answer, or not the next one
         │   └─ ForeignServer         a server that does not speak Kafka's protocol
         ├─ UnsupportedVersion    no version of an API that both sides support
         ├─ AuthenticationFailed  the broker refuses the credentials, or cannot prove that it knows them
         └─ TokenError            no token for OAUTHBEARER

None of them ever contains a password, a key or a token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.legible import MESSAGE_CHARACTERS, join_lines, make_legible


class ErrorReaction(Enum):
    """What to do about an error: give up, retry, or look up the leader or the coordinator again and then retry."""

    FATAL = auto()
    RETRY = auto()
    FIND_LEADER = auto()
    FIND_COORDINATOR = auto()
    FIND_BOTH = auto()  # the broker cannot be reached


# As Apache Kafka's Java client groups them: RetriableException, InvalidMetadataException, RefreshRetriableException.
_CODES: Final = {
    ErrorReaction.RETRY: (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.NOT_CONTROLLER,
    ),
    ErrorReaction.FIND_LEADER: (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ),
    ErrorReaction.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
}
_REACTIONS: Final = {code: reaction for reaction, codes in _CODES.items() for code in codes}


# What a code means, where an answer without a message leaves its reader alone.
_REASONS: Final[dict[int, str]] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name has up to 249 letters, digits, dots, underscores and hyphens"
}


def choose_error_reaction(code: int) -> ErrorReaction:
    """Return the reaction to an error code of an answer. Unknown codes are fatal."""
    return _REACTIONS.get(code, ErrorReaction.FATAL)  # type: ignore[call-overload, no-any-return]


def is_retriable_code(code: int) -> bool:
    """Return whether a retry may succeed after this error code of an answer."""
    return choose_error_reaction(code) is not ErrorReaction.FATAL


def get_error_name(code: int) -> str:
    """Return the name of an error code in Kafka's documentation."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def check_error_code(code: int, purpose: str, message: str | None = None) -> None:
    """Raise `ClientError` unless an error code of an answer is 0. `purpose` was requested, `message` came with it."""
    if code != ErrorCode.NONE:
        message = message or _REASONS.get(code)
        detail = f" ({message})" if message else ""
        raise ClientError(f"{purpose}: {get_error_name(code)}{detail}", choose_error_reaction(code), code)


class SettingError(ValueError):
    """An invalid setting. The message begins with its name."""


class ClientError(Exception):
    """A failed request. `code` is the error code of the answer, None if there was no answer."""

    def __init__(self, message: str, reaction: ErrorReaction = ErrorReaction.FATAL, code: int | None = None) -> None:
        # The message may contain a broker's text, of any length and with control characters.
        super().__init__(make_legible(join_lines(message), MESSAGE_CHARACTERS))
        self.reaction = reaction
        self.code = code

    @property
    def is_retriable(self) -> bool:
        """Whether a retry may succeed."""
        return self.reaction is not ErrorReaction.FATAL


class ProtocolError(Exception):
    """Bytes from a broker that are not an answer, or not the answer to the next request."""


class ForeignServer(ProtocolError):
    """A server that speaks another protocol. `protocol` is its name."""

    def __init__(self, protocol: str) -> None:
        remedy = ": set security.protocol to SSL or SASL_SSL" if protocol == "TLS" else ", not Kafka's protocol"
        super().__init__(f"the server speaks {protocol}{remedy}")


class UnsupportedVersion(Exception):
    """No version of an API is supported by both sides."""


class AuthenticationFailed(Exception):
    """The broker refuses the credentials, or cannot prove that it knows them."""


class TokenError(Exception):
    """No token can be had."""


FAILURES: Final = (OSError, ProtocolError, UnsupportedVersion, AuthenticationFailed, TokenError)  # below a request
