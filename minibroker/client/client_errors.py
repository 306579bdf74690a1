"""What goes wrong between a client and a cluster, in one line each, and what each error code asks the client to do.

    Exception
     ├─ SettingError          a setting that cannot be
     ├─ ClientError           a request failed; its reaction says whether it may pass
     └─ (below a request; a caller sees them as ClientError)
         ├─ ProtocolError         bytes that are no answer, or not the next one
         ├─ UnsupportedVersion    no version of an API that both sides know
         ├─ AuthenticationFailed  the broker refuses the credentials, or cannot prove that it knows them
         └─ TokenError            no token for OAUTHBEARER

None of them ever contains a password, a key or a token.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.legible import MESSAGE_CHARACTERS, legible


class Reaction(Enum):
    """What to do about an error: stop, ask again, or ask again after finding the leader or the coordinator anew."""

    FATAL = auto()
    RETRY = auto()
    FIND_LEADER = auto()
    FIND_COORDINATOR = auto()
    FIND_BOTH = auto()  # the broker itself is away


# As Apache Kafka's Java client groups them: RetriableException, InvalidMetadataException, RefreshRetriableException.
_CODES: Final = {
    Reaction.RETRY: (
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
    Reaction.FIND_LEADER: (
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
    Reaction.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
}
_REACTIONS: Final = {code: reaction for reaction, codes in _CODES.items() for code in codes}


def reaction(code: int) -> Reaction:
    """Return what an error code of an answer asks for; unknown codes are fatal."""
    return _REACTIONS.get(code, Reaction.FATAL)  # type: ignore[call-overload, no-any-return]


def error_name(code: int) -> str:
    """Return the name of an error code, as Kafka's documentation has it."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise `ClientError` unless an error code of an answer is 0. `what` was asked, `message` is the broker's."""
    if code != ErrorCode.NONE:
        detail = f" ({message})" if message else ""
        raise ClientError(f"{what}: {error_name(code)}{detail}", reaction(code), code)


class SettingError(ValueError):
    """A setting that cannot be; the message begins with its name."""


class ClientError(Exception):
    """A request failed, said in one line; `code` is that of the answer, None if there was no answer."""

    def __init__(self, message: str, reaction: Reaction = Reaction.FATAL, code: int | None = None) -> None:
        # A broker's words may be in it: any number of them, and what a terminal would obey.
        super().__init__(legible(" ".join(message.split()), MESSAGE_CHARACTERS))
        self.reaction = reaction
        self.code = code

    @property
    def retriable(self) -> bool:
        """Whether it may pass."""
        return self.reaction is not Reaction.FATAL


class ProtocolError(Exception):
    """Bytes from a broker that are no answer, or not the answer to the next request."""


class UnsupportedVersion(Exception):
    """The broker and we have no version of an API in common."""


class AuthenticationFailed(Exception):
    """The broker refuses the credentials, or cannot prove that it knows them."""


class TokenError(Exception):
    """There is no token to be had, said in one line."""
