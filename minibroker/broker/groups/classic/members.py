"""The members of a classic group: who they are, which protocols they support, which of their requests wait.

What follows when a member comes or goes is in `rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from minibroker.broker.clock import Timer
from minibroker.broker.delayed_operations import Promise
from minibroker.broker.groups.hash_order import find_java_hash_slot
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.group_records import GroupMetadataValue
from minibroker.protocol.messages.groups import JoinGroupRequest, JoinGroupResponse, SyncGroupResponse

CONSUMER_PROTOCOL = "consumer"
VERSION_BYTES = 2
COMMON_VERSION = 0  # all versions of a subscription begin with the fields of this one
NOT_SET = -1
PROTOCOL_BYTES = 100  # about what a protocol takes in memory beside its name and metadata


class Protocol(NamedTuple):
    """An assignment strategy that a member supports, and the member's metadata for it, which the leader reads."""

    name: str
    metadata: bytes


def list_protocols(request: JoinGroupRequest) -> list[Protocol]:
    """Return the protocols of a request; of several with one name, the first."""
    protocols: dict[str, Protocol] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, Protocol(protocol.name, protocol.metadata))
    return list(protocols.values())


def make_join_group_error(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return the answer to a JoinGroup that is refused."""
    return JoinGroupResponse(member_id=member_id, protocol_name=None, error_code=code)


def measure_protocol_bytes(protocols: Iterable[Protocol | JoinGroupRequest.JoinGroupRequestProtocol]) -> int:
    """Return about how many bytes of memory the protocols of a member take."""
    return sum(PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in protocols)


class Member:
    """One member. `instance_id` is that of a static member (KIP-345), None for a dynamic one.

    `is_new` is true while its first JoinGroup waits: it cannot send heartbeats yet. `session` expires
    `session_timeout_ms` after its last request.
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

    def get_metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; empty if it does not support it."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def choose_preferred_protocol(self, candidates: set[str]) -> str | None:
        """Return the candidate that comes first in the member's own list, or None."""
        return next((each.name for each in self.protocols if each.name in candidates), None)

    def list_subscribed_topics(self, protocol: str | None) -> list[str]:
        """Return the topics that a consumer's metadata subscribes to. Raises MalformedMessage."""
        metadata = self.get_metadata(protocol)
        return ConsumerProtocolSubscription.decode_from(metadata, COMMON_VERSION, VERSION_BYTES)[0].topics

    def cancel_session_timer(self) -> None:
        """Stop waiting for its heartbeats."""
        if self.session is not None:
            self.session.cancel()
            self.session = None

    # --- its record -------------------------------------------------------------------------------

    def make_record_value(self, protocol: str | None, assignment: bytes) -> GroupMetadataValue.MemberMetadata:
        """Return the member's part of the group's record, with this assignment."""
        return GroupMetadataValue.MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.get_metadata(protocol),
            assignment=assignment,
        )

    @classmethod
    def make_from_record(cls, protocol: str | None, value: GroupMetadataValue.MemberMetadata) -> Member:
        """Return the member that is a part of a group's record."""
        return cls(
            value.member_id,
            value.group_instance_id,
            value.client_id,
            value.client_host,
            value.session_timeout if value.rebalance_timeout == NOT_SET else value.rebalance_timeout,
            value.session_timeout,
            [Protocol(protocol or "", value.subscription)],
            value.assignment,
        )


class Membership:
    """The members of a classic group, in the order in which they joined.

    `kind` is the protocol type that all members share, None if there was no member yet. `static` has the member id of
    each instance id. `pending` has the ids that were given out and that nobody has joined with yet (KIP-394), with the
    timers after which they are forgotten. `joining` and `syncing` answer the requests that wait, by member id.
    `unsynced` are the members whose SyncGroup is still expected. `protocol_bytes` is the memory of all their protocols.
    """

    def __init__(self) -> None:
        self.kind: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}
        self.pending: dict[str, Timer] = {}
        self.joining: dict[str, Promise[JoinGroupResponse]] = {}
        self.syncing: dict[str, Promise[SyncGroupResponse]] = {}
        self.unsynced: set[str] = set()
        self.protocol_bytes = 0
        self._supported: Counter[str] = Counter()

    @property
    def have_all_joined(self) -> bool:
        """Whether all members have joined in this rebalance, and no client is still to join with a pending id."""
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance waits for the members: the longest timeout of all."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def get_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member of this id. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
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

    def add_member(self, member: Member) -> None:
        """Add a member; the first is the leader, until it leaves or does not join in time."""
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._add_to_protocol_counts(member, 1)
        self.forget_pending_member(member.member_id)

    def remove_member(self, member_id: str) -> None:
        """Remove a member, or an id that was given out; answer its waiting requests with UNKNOWN_MEMBER_ID."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.cancel_session_timer()
            self._add_to_protocol_counts(member, -1)
            if member.instance_id is not None:
                del self.static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.forget_pending_member(member_id)
        self.unsynced.discard(member_id)
        code = ErrorCode.UNKNOWN_MEMBER_ID
        self.answer_join_group(member_id, make_join_group_error(code))
        self.answer_sync_group(member_id, SyncGroupResponse(error_code=code))

    def replace_static_member(self, old_member: Member, member_id: str) -> Member:
        """Give a static member another id; fence the requests that wait under the old one, and end its session."""
        code = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join_group(old_member.member_id, make_join_group_error(code, old_member.member_id))
        self.answer_sync_group(old_member.member_id, SyncGroupResponse(error_code=code))
        old_member.cancel_session_timer()
        del self.members[old_member.member_id]
        member = self.members[member_id] = Member(
            member_id,
            old_member.instance_id,
            old_member.client_id,
            old_member.client_host,
            old_member.rebalance_timeout_ms,
            old_member.session_timeout_ms,
            old_member.protocols,
            old_member.assignment,
        )
        if self.leader_id == old_member.member_id:
            self.leader_id = member_id
        if old_member.member_id in self.unsynced:
            self.unsynced.remove(old_member.member_id)
            self.unsynced.add(member_id)
        if old_member.instance_id is not None:
            self.static[old_member.instance_id] = member_id
        return member

    def update_member(
        self, member: Member, protocols: Iterable[Protocol], rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Give a member other protocols and timeouts."""
        self._add_to_protocol_counts(member, -1)
        member.protocols = list(protocols)
        self._add_to_protocol_counts(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def _add_to_protocol_counts(self, member: Member, sign: int) -> None:
        """Add `sign` (1 or -1) to the number of members that support each of the member's protocols."""
        for protocol in member.protocols:
            self._supported[protocol.name] += sign
            if not self._supported[protocol.name]:
                del self._supported[protocol.name]
        self.protocol_bytes += sign * measure_protocol_bytes(member.protocols)

    def forget_pending_member(self, member_id: str) -> None:
        """Stop waiting for a client to join with this id, which was given out."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a member that has; return False if nobody has."""
        if self.leader_id is None:
            return False
        if self.leader_id not in self.joining:
            joined = next((member_id for member_id in self.members if member_id in self.joining), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    # --- protocols --------------------------------------------------------------------------------

    def have_common_protocol(self, names: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols."""
        return any(self._supported[name] == len(self.members) for name in names)

    def select_protocol(self) -> str | None:
        """Return the protocol with the most votes, of those that all members support; None without members.

        Of several with as many votes, it is the first in the order of Java's HashMap, as in Kafka.
        """
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(
            filter(None, (member.choose_preferred_protocol(candidates) for member in self.members.values()))
        )
        return min(votes, key=lambda name: (-votes[name], find_java_hash_slot(name))) if votes else None

    # --- answers ----------------------------------------------------------------------------------

    def answer_join_group(self, member_id: str, response: JoinGroupResponse) -> None:
        """Answer the waiting JoinGroup of a member, if there is one."""
        joined = self.joining.pop(member_id, None)
        if joined is not None:
            joined.resolve(response)

    def answer_sync_group(self, member_id: str, response: SyncGroupResponse) -> bool:
        """Answer the waiting SyncGroup of a member; return whether there was one."""
        synced = self.syncing.pop(member_id, None)
        if synced is not None:
            synced.resolve(response)
        return synced is not None
