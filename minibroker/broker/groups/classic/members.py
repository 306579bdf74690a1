"""The members of a classic group: who they are, which protocols they understand, which of them waits for an answer.

What a member's coming and going sets in motion is the business of `rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from minibroker.broker.clock import Timer
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import JoinGroupResponse, SyncGroupResponse

Respond = Callable[[Any], None]  # takes the response message of a request that waits


class Protocol(NamedTuple):
    """A way of assigning partitions that a member understands, and what it tells the leader for it."""

    name: str
    metadata: bytes


def join_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """The answer to a JoinGroup that is refused."""
    return JoinGroupResponse(member_id=member_id, protocol_name=None, error_code=code)


class Member:
    """One member. `instance_id` is that of a static member (KIP-345), None for a dynamic one.

    `is_new` is true while its first JoinGroup waits: it cannot send heartbeats yet. `session` runs out when nothing has
    been heard of it for `session_timeout_ms`.
    """

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Iterable[Protocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = list(protocols)
        self.assignment = assignment
        self.is_new = False
        self.session: Timer | None = None

    def metadata(self, protocol: str | None) -> bytes:
        """What it tells the leader for a protocol; empty if it does not understand it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: set[str]) -> str | None:
        """The protocol that it likes best of the candidates."""
        return next((each.name for each in self.protocols if each.name in candidates), None)

    def end_session(self) -> None:
        """Wait for its heartbeats no longer."""
        if self.session is not None:
            self.session.cancel()
            self.session = None


class Membership:
    """Who belongs to a classic group, in the order in which they came.

    `kind` is the protocol type that all members share, None as long as there was none. `static` has the member id of
    each instance id. `pending` are the ids that were given out, and whose members have not joined with them yet
    (KIP-394), with the timers after which they are forgotten. `joining` and `syncing` answer the requests that wait, by
    member id. `unsynced` are the members from whom a SyncGroup is still expected.
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, Timer] = {}
        self.joining: dict[str, Respond] = {}
        self.syncing: dict[str, Respond] = {}
        self.unsynced: set[str] = set()
        self._supported: Counter[str] = Counter()

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody is missed in the rebalance that goes on."""
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for the members: as long as the slowest asks for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member of this id. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
        if instance_id is not None:
            present = self.static.get(instance_id)
            if present is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group knows no static member {instance_id!r}")
            if present != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} is member {present} now")
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id!r}")
        return member

    # --- coming and going -------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Take a member in; the first is the leader, until it leaves or does not join in time."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._supported.update(protocol.name for protocol in member.protocols)
        self.forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Take a member out; one that waits to join is told that it is none, and may come again."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.end_session()
            self._supported.subtract(protocol.name for protocol in member.protocols)
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending(member_id)
        self.unsynced.discard(member_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join(member_id, join_error(code))
        self.answer_sync(member_id, SyncGroupResponse(error_code=code))

    def replace(self, old: Member, member_id: str) -> Member:
        """Give a static member another id; whoever waits under the old one is fenced, and its session ends."""
        code = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(old.member_id, join_error(code, old.member_id))
        self.answer_sync(old.member_id, SyncGroupResponse(error_code=code))
        old.end_session()
        del self.members[old.member_id]
        member = self.members[member_id] = Member(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        if self.leader_id == old.member_id:
            self.leader_id = member_id
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(member_id)
        if old.instance_id is not None:
            self.static[old.instance_id] = member_id
        return member

    def change_protocols(self, member: Member, protocols: Iterable[Protocol]) -> None:
        """Have a member understand other protocols, or tell other things for them."""
        self._supported.subtract(protocol.name for protocol in member.protocols)
        member.protocols = list(protocols)
        self._supported.update(protocol.name for protocol in member.protocols)

    def forget_pending(self, member_id: str) -> None:
        """Expect nobody of this id any more."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def elect_joined_leader(self) -> bool:
        """Have a leader that has joined, the present one if it has; False if nobody has."""
        if self.leader_id is None:
            return False
        if self.leader_id not in self.joining:
            joined = next((member_id for member_id in self.members if member_id in self.joining), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    # --- protocols --------------------------------------------------------------------------------

    def have_in_common(self, names: Iterable[str]) -> bool:
        """Whether all members understand one of these protocols."""
        return any(self._supported[name] == len(self.members) for name in names)

    def select_protocol(self) -> str | None:
        """The protocol that most members like best, of those that all understand; None if there are no members."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(filter(None, (member.vote(candidates) for member in self.members.values())))
        return votes.most_common(1)[0][0] if votes else None

    # --- answers ----------------------------------------------------------------------------------

    def answer_join(self, member_id: str, response: JoinGroupResponse) -> None:
        """Answer the JoinGroup of a member, if one waits."""
        respond = self.joining.pop(member_id, None)
        if respond is not None:
            respond(response)

    def answer_sync(self, member_id: str, response: SyncGroupResponse) -> bool:
        """Answer the SyncGroup of a member; whether one has waited."""
        respond = self.syncing.pop(member_id, None)
        if respond is not None:
            respond(response)
        return respond is not None
