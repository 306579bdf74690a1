"""Members of classic groups, driven request by request through a harness.

What must come of it is each test's business.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.groups.classic.classic_group import ClassicGroup
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from minibroker.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tests.broker.harness import Harness, Waiting

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def subscription(*topics: str) -> bytes:
    """Return a consumer's subscription, as far as the coordinator looks into it."""
    return b"\0\0" + ConsumerProtocolSubscription(topics=list(topics)).encode(0)


RANGE = (("range", subscription("t")),)


def answered(outcome: Any) -> Any:
    """The response, of a request that has waited too."""
    return outcome.response() if isinstance(outcome, Waiting) else outcome


class Driver:
    """Sends the requests of a group's members to `node`, the one that looks after it unless that is changed."""

    def __init__(self, harness: Harness, group: str = GROUP) -> None:
        self.harness = harness
        self.name = group
        self.node = harness.coordinator(group)

    @property
    def group(self) -> ClassicGroup:
        """The group itself, for a look inside."""
        return self.harness.cluster.groups.get_classic_group(self.name)

    # --- one request ----------------------------------------------------------------------------

    def ask_join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        version: int = 9,
    ) -> Any:
        """The answer to one JoinGroup, or a `Waiting`."""
        request = JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=kind,
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        return self.harness.request(request, version, node=self.node)

    def ask_sync(
        self,
        joined: JoinGroupResponse,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        version: int = 5,
        **changed: Any,
    ) -> Any:
        """The answer to the SyncGroup that follows on a JoinGroup, with some fields changed, or a `Waiting`."""
        fields = {
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "group_instance_id": instance,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol_name,
            **changed,
        }
        given = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in (assignments or {}).items()
        ]
        return self.harness.request(
            SyncGroupRequest(group_id=self.name, assignments=given, **fields), version, node=self.node
        )

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None, version: int = 4
    ) -> ErrorCode:
        """The code of the answer to a Heartbeat, in the present generation unless told."""
        request = HeartbeatRequest(
            group_id=self.name,
            generation_id=self.group.generation if generation is None else generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        response: HeartbeatResponse = self.harness.request(request, version, node=self.node)
        return ErrorCode(response.error_code)

    def leave(self, *members: str | tuple[str, str | None], version: int = 5) -> Any:
        """The answer to a LeaveGroup, of a member id or (member id, instance id)."""
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=each)
            if isinstance(each, str)
            else LeaveGroupRequest.MemberIdentity(member_id=each[0], group_instance_id=each[1])
            for each in members
        ]
        request = LeaveGroupRequest(group_id=self.name, members=identities)
        if version < 3:
            request = LeaveGroupRequest(group_id=self.name, member_id=identities[0].member_id)
        return self.harness.request(request, version, node=self.node)

    # --- several ----------------------------------------------------------------------------------

    def new_member(self, **join: Any) -> tuple[str, Any]:
        """Join as somebody new, with the id that is given for it: the id, and the JoinGroup that waits."""
        first = self.ask_join(**join)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
        return first.member_id, self.ask_join(first.member_id, **join)

    def turn(self) -> None:
        """Let what is due at once happen, such as the first generation of an empty group."""
        self.harness.clock.advance(0)

    def stable(self, count: int = 1, **join: Any) -> list[str]:
        """A stable group of `count` members, the leader first, each with its own number as assignment."""
        waiting = dict(self.new_member(**join) for _ in range(count))
        self.turn()
        joined = {member_id: answered(join) for member_id, join in waiting.items()}
        self.sync_all(joined)
        return list(joined)

    def sync_all(self, joined: dict[str, JoinGroupResponse]) -> dict[str, Any]:
        """Let all sync, the leader last, each to get its own number; return the answers by member id."""
        assignments = {member_id: b"%d" % number for number, member_id in enumerate(joined)}
        leader = next(iter(joined.values())).leader
        outcomes = {
            member_id: self.ask_sync(join, assignments if member_id == leader else None)
            for member_id, join in sorted(joined.items(), key=lambda each: each[0] == leader)
        }
        return {member_id: answered(outcomes[member_id]) for member_id in joined}
