"""Members of classic groups that speak by hand, each on a connection of its own, as JoinGroup and SyncGroup may wait.

What must come back lives in the tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from minibroker.protocol.declare import Message
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)

JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5  # the newest versions
SESSION_MS = 10_000
REBALANCE_MS = 20_000
FIRST_WITH_REQUIRED_ID = 4
KIND = "consumer"
# Version 0, one topic `t`, no user data: what a consumer tells its leader.
SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff"
RANGE = (("range", SUBSCRIPTION),)

Protocols = Sequence[tuple[str, bytes]]


def look_up(connection: Connection, group: str) -> None:
    """Make the broker coordinate the group: Kafka has to be asked for it first."""

    def code() -> int:
        answer = connection.ask(FindCoordinatorRequest(key=group), 3)
        return int(answer.error_code)

    assert repeated(code, lambda seen: seen == 0) == 0
    # Kafka's broker may still read the partition that it has just got.
    missing = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    last = repeated(
        lambda: connection.ask(missing, HEARTBEAT).error_code, lambda seen: seen == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert last == ErrorCode.UNKNOWN_MEMBER_ID


def join_request(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: Protocols = RANGE,
    kind: str = KIND,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
) -> JoinGroupRequest:
    asked = [JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols]
    request: JoinGroupRequest = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=asked,
    )
    return request


class Member:
    """One member; `settings` are those of `join_request`. It keeps the id and the generation that it was told last."""

    def __init__(self, connection: Connection, group: str, **settings: Any) -> None:
        self.connection = connection
        self.group = group
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self.protocol: str | None = None

    @property
    def instance(self) -> str | None:
        found: str | None = self.settings.get("instance")
        return found

    # --- JoinGroup ------------------------------------------------------------------------------

    def join(self, version: int = JOIN) -> Any:
        """JoinGroup, again with the id that the first answer gives, until it lets the member in; the answer."""
        return self.joining(version)()

    def joining(self, version: int = JOIN) -> Callable[[], Any]:
        """Send a JoinGroup that may have to wait; what is returned waits for its answer."""
        if version >= FIRST_WITH_REQUIRED_ID and not self.member_id and self.instance is None:
            first = self.connection.ask(join_request(self.group, **self.settings), version)
            assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
            self.member_id = first.member_id
        received = self._sent(join_request(self.group, self.member_id, **self.settings), version)

        def answer() -> JoinGroupResponse:
            joined = received()
            if joined.error_code == 0:
                self.member_id, self.generation = joined.member_id, joined.generation_id
                self.protocol = joined.protocol_name
            return joined

        return answer

    # --- SyncGroup ------------------------------------------------------------------------------

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC, **changed: Any) -> Any:
        """The answer to a SyncGroup, with some fields changed."""
        return self.syncing(assignments, version, **changed)()

    def syncing(
        self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC, **changed: Any
    ) -> Callable[[], Any]:
        """Send a SyncGroup that may have to wait; what is returned waits for its answer."""
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        fields = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.settings.get("kind", KIND),
            "protocol_name": self.protocol,
            **changed,
        }
        return self._sent(SyncGroupRequest(group_id=self.group, assignments=given, **fields), version)

    # --- Heartbeat and LeaveGroup -----------------------------------------------------------------

    def heartbeat(self, version: int = HEARTBEAT, **changed: Any) -> int:
        """The error code of a Heartbeat, with some fields changed."""
        fields = {
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            **changed,
        }
        code: int = self.connection.ask(HeartbeatRequest(group_id=self.group, **fields), version).error_code
        return code

    def leave(self, *others: tuple[str, str | None], version: int = LEAVE) -> Any:
        """The answer to a LeaveGroup of this member, or of others by (member id, instance id)."""
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in others or [(self.member_id, self.instance)]
        ]
        request = LeaveGroupRequest(group_id=self.group, members=identities)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=identities[0].member_id)
        return self.connection.ask(request, version)

    # --- several ----------------------------------------------------------------------------------

    def settle(self) -> Any:
        """Be the only member of a stable group, with the assignment `all`; the answer to the JoinGroup."""
        joined = self.join()
        assert (joined.error_code, joined.leader) == (0, self.member_id), joined
        assert self.sync({self.member_id: b"all"}).assignment == b"all"
        return joined

    def _sent(self, request: Message, version: int) -> Callable[[], Any]:
        correlation_id = self.connection.send(request, version)
        return lambda: self.connection.answer(request.api_key, version, correlation_id)


def rebalanced(*members: Member, version: int = JOIN) -> list[Any]:
    """Let all join, the next generation of them all; return the answers to their JoinGroups.

    The first are to be members already, so that the group waits for them.
    """
    waiting = []
    for member in reversed(members):
        known = bool(member.member_id)
        waiting.append(member.joining(version))
        if not known:
            until_rebalancing(members[0])
    return [answer() for answer in reversed(waiting)]


def until_rebalancing(member: Member) -> None:
    """Wait until a member's heartbeat is answered with REBALANCE_IN_PROGRESS."""
    code = repeated(member.heartbeat, lambda seen: seen == ErrorCode.REBALANCE_IN_PROGRESS)
    assert code == ErrorCode.REBALANCE_IN_PROGRESS
