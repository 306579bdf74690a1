"""What the heartbeats of consumer, share and streams groups have in common: epochs that mean something, and errors."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode, KafkaError

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2  # of a static member, whose place is kept until its session ends
UNKNOWN_TIMEOUT_MS = -1


def check_not_empty(text: str | None, name: str) -> None:
    """Raise KafkaError(INVALID_REQUEST), with `name` in the message, if a text is empty or blank; None is allowed."""
    if text is not None and not text.strip():
        raise make_invalid_request_error(f"{name} can't be empty.")


def make_invalid_request_error(message: str) -> KafkaError:
    """Return the KafkaError(INVALID_REQUEST) for a heartbeat with contradictory or missing fields."""
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


def make_fenced_epoch_error(kind: str, epoch: int, known_epoch: int, detail: str = "") -> KafkaError:
    """Return the error for a member of this kind of group that names another epoch than the known one."""
    relation = "greater" if epoch > known_epoch else "smaller"
    message = (
        f"The {kind} group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known_epoch}){detail}. The member must abandon all its partitions and rejoin."
    )
    return KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def make_unreleased_instance_error(member_id: str, instance_id: str, owner_id: str) -> KafkaError:
    """Return the error for a static member whose instance id another member has."""
    message = (
        f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
        f"is owned by {owner_id} member."
    )
    return KafkaError(ErrorCode.UNRELEASED_INSTANCE_ID, message)


def choose_reported_or_known(reported: str | None, known: str | None) -> str | None:
    """Return what a heartbeat reports, or if it leaves that out, as most do, what is known already."""
    return known if reported is None else reported
