"""Classic groups, whose leader computes the assignment, and requests for groups of every kind."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    """Asks for the coordinator of a group, a transactional id or a share partition."""

    key: str = field("0-3")
    key_type: int8 = field("1+")
    coordinator_keys: list[str] = field("4+")


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    """Names the coordinator; from version 4 on, one for each of several keys."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field("0-3")
    error_message: str | None = field("1-3")
    node_id: int32 = field("0-3")
    host: str = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+")

    class Coordinator(Struct):
        key: str = field()
        node_id: int32 = field()
        host: str = field()
        port: int32 = field()
        error_code: int16 = field()
        error_message: str | None = field()


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """Asks to join or rejoin a group, with the assignment protocols that the member supports."""

    group_id: str = field()
    session_timeout_ms: int32 = field()
    rebalance_timeout_ms: int32 = field("1+", default=-1)
    member_id: str = field()
    group_instance_id: str | None = field("5+", default=None)
    protocol_type: str = field()
    protocols: list[JoinGroupRequestProtocol] = field()
    reason: str | None = field("8+", default=None)

    class JoinGroupRequestProtocol(Struct):
        name: str = field()
        metadata: bytes = field()


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    """Answers when the generation is complete; the leader gets all members."""

    throttle_time_ms: int32 = field("2+")
    error_code: int16 = field()
    generation_id: int32 = field(default=-1)
    protocol_type: str | None = field("7+", default=None)
    protocol_name: str | None = field(nullable="7+")
    leader: str = field()
    skip_assignment: bool = field("9+")
    member_id: str = field()
    members: list[JoinGroupResponseMember] = field()

    class JoinGroupResponseMember(Struct):
        member_id: str = field()
        group_instance_id: str | None = field("5+", default=None)
        metadata: bytes = field()


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    """Sends the leader's assignment, or asks for the member's own."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field("5+", default=None)
    protocol_name: str | None = field("5+", default=None)
    assignments: list[SyncGroupRequestAssignment] = field()

    class SyncGroupRequestAssignment(Struct):
        member_id: str = field()
        assignment: bytes = field()


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    """Answers with the member's assignment."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    protocol_type: str | None = field("5+", default=None)
    protocol_name: str | None = field("5+", default=None)
    assignment: bytes = field()


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    """Shows that a member of a classic group is alive."""

    group_id: str = field()
    generation_id: int32 = field()
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    """Says whether the member still belongs to the generation."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    """Asks to remove a member from its group; from version 3 on, several members."""

    group_id: str = field()
    member_id: str = field("0-2")
    members: list[MemberIdentity] = field("3+")

    class MemberIdentity(Struct):
        member_id: str = field()
        group_instance_id: str | None = field(default=None)
        reason: str | None = field("5+", default=None)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    """Says for each member whether it has left."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    members: list[MemberResponse] = field("3+")

    class MemberResponse(Struct):
        member_id: str = field()
        group_instance_id: str | None = field()
        error_code: int16 = field()


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    """Asks for state and members of classic groups."""

    groups: list[str] = field()
    include_authorized_operations: bool = field("3+")


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    """Describes the groups. Metadata and assignments of members are opaque bytes."""

    throttle_time_ms: int32 = field("1+")
    groups: list[DescribedGroup] = field()

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field("6+", default=None)
        group_id: str = field()
        group_state: str = field()
        protocol_type: str = field()
        protocol_data: str = field()
        members: list[DescribedGroupMember] = field()
        authorized_operations: int32 = field("3+", default=-2147483648)

        class DescribedGroupMember(Struct):
            member_id: str = field()
            group_instance_id: str | None = field("4+", default=None)
            client_id: str = field()
            client_host: str = field()
            member_metadata: bytes = field()
            member_assignment: bytes = field()


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    """Asks for the groups that a broker coordinates, optionally by state and type."""

    states_filter: list[str] = field("4+")
    types_filter: list[str] = field("5+")


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    """Lists the groups."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    groups: list[ListedGroup] = field()

    class ListedGroup(Struct):
        group_id: str = field()
        protocol_type: str = field()
        group_state: str = field("4+")
        group_type: str = field("5+")


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    """Asks to delete groups that have no members, with their offsets."""

    groups_names: list[str] = field()


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    """Says for each group whether it was deleted."""

    throttle_time_ms: int32 = field()
    results: list[DeletableGroupResult] = field()

    class DeletableGroupResult(Struct):
        group_id: str = field()
        error_code: int16 = field()
        error_message: str | None = field("3+", default=None)
