"""Classic groups, whose leader computes the assignment, and requests for groups of every kind."""

from __future__ import annotations

from minibroker.protocol.declare import Message, Struct, field, int8, int16, int32


class FindCoordinatorRequest(
    Message, api_key=10, versions="0-6", flexible="3+", kips={1: 98, 2: 219, 3: 482, 4: 699, 5: 890, 6: 932}
):
    """Asks for the coordinator of a group, a transactional id or a share partition."""

    key: str = field(
        "0-3", about="The group or transactional id whose coordinator is wanted: its hash chooses a partition."
    )
    key_type: int8 = field(
        "1+",
        about="What the key is: 0 a group, 1 a transactional id, 2 a share partition (as group:topic id:partition).",
    )
    coordinator_keys: list[str] = field("4+", about="Several keys of one type, as version 4 can ask for many at once.")


class FindCoordinatorResponse(
    Message, api_key=10, versions="0-6", flexible="3+", kips={2: 219, 3: 482, 4: 699, 5: 890, 6: 932}
):
    """Names the coordinator; from version 4 on, one for each of several keys."""

    throttle_time_ms: int32 = field("1+", kip=124)
    error_code: int16 = field("0-3")
    error_message: str | None = field("1-3")
    node_id: int32 = field(
        "0-3", about="The broker to send the requests of this group or transactional id to; -1 if there is none yet."
    )
    host: str = field("0-3")
    port: int32 = field("0-3")
    coordinators: list[Coordinator] = field("4+", about="The coordinator of each key, or an error of its own.")

    class Coordinator(Struct):
        key: str = field(about="The key that this is the coordinator of.")
        node_id: int32 = field(about="The broker to send the requests of this key to; -1 if there is none yet.")
        host: str = field()
        port: int32 = field()
        error_code: int16 = field()
        error_message: str | None = field()


class JoinGroupRequest(
    Message,
    api_key=11,
    versions="0-9",
    flexible="6+",
    kips={1: 62, 3: 219, 4: 394, 5: 345, 6: 482, 7: 559, 8: 800, 9: 814},
):
    """Asks to join or rejoin a group, with the assignment protocols that the member supports."""

    group_id: str = field()
    session_timeout_ms: int32 = field(
        about="How long the coordinator waits for a heartbeat before it expels the member."
    )
    rebalance_timeout_ms: int32 = field(
        "1+",
        default=-1,
        about="How long a rebalance waits for this member to join again; in version 0 it is the session timeout.",
    )
    member_id: str = field(
        about="Empty for a new member: the coordinator makes an id up, and since version 4 wants it back."
    )
    group_instance_id: str | None = field("5+", default=None)
    protocol_type: str = field(
        about='What kind of group this is: "consumer", or "connect" for workers; all members must have the same one.'
    )
    protocols: list[JoinGroupRequestProtocol] = field(
        about="The assignors the member has, the best one first; the coordinator picks one that all have."
    )
    reason: str | None = field("8+", default=None, about="Why the member joins (again), for the broker's log.")

    class JoinGroupRequestProtocol(Struct):
        name: str = field(about='The assignor\'s name, such as "range" or "cooperative-sticky".')
        metadata: bytes = field(
            about="The member's subscription in the language of the assignor; the broker hands it to the leader unread."
        )


class JoinGroupResponse(
    Message,
    api_key=11,
    versions="0-9",
    flexible="6+",
    kips={2: 124, 3: 219, 4: 394, 5: 345, 6: 482, 7: 559, 8: 800, 9: 814},
):
    """Answers when the generation is complete; the leader gets all members."""

    throttle_time_ms: int32 = field("2+")
    error_code: int16 = field()
    generation_id: int32 = field(
        default=-1,
        about="Counts the group's rebalances: members send it along, and those of an older generation are refused.",
    )
    protocol_type: str | None = field("7+", default=None, about="The kind of group, so that the client can check it.")
    protocol_name: str | None = field(
        nullable="7+", about="The assignor that all members have, by which the leader assigns."
    )
    leader: str = field(about="The member that assigns the partitions for all; a client compares it with its own id.")
    skip_assignment: bool = field(
        "9+",
        about="Tells a static leader that came back that the group keeps its assignment, so it must not compute one.",
    )
    member_id: str = field(about="The id to use from now on; with MEMBER_ID_REQUIRED the one to join with again.")
    members: list[JoinGroupResponseMember] = field(
        about="All members with their subscriptions, for the leader alone; the others get an empty list."
    )

    class JoinGroupResponseMember(Struct):
        member_id: str = field()
        group_instance_id: str | None = field("5+", default=None)
        metadata: bytes = field(about="The member's subscription, as it sent it.")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+", kips={2: 219, 3: 345, 4: 482, 5: 559}):
    """Sends the leader's assignment, or asks for the member's own."""

    group_id: str = field()
    generation_id: int32 = field(
        about="The generation that the assignment is for; a request for an older one is refused."
    )
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)
    protocol_type: str | None = field(
        "5+",
        default=None,
        about="The kind of group as the member knows it: the broker refuses a member that disagrees.",
    )
    protocol_name: str | None = field(
        "5+", default=None, about="The assignor as the member knows it: the broker refuses a member that disagrees."
    )
    assignments: list[SyncGroupRequestAssignment] = field(
        about="What each member should get, from the leader alone; the others send an empty list and wait."
    )

    class SyncGroupRequestAssignment(Struct):
        member_id: str = field()
        assignment: bytes = field(
            about="The member's partitions in the language of the assignor; the broker hands them on unread."
        )


class SyncGroupResponse(
    Message, api_key=14, versions="0-5", flexible="4+", kips={1: 124, 2: 219, 3: 345, 4: 482, 5: 559}
):
    """Answers with the member's assignment."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    protocol_type: str | None = field("5+", default=None, about="The kind of group, so that the client can check it.")
    protocol_name: str | None = field(
        "5+", default=None, about="The assignor that was used, so that the client can check it."
    )
    assignment: bytes = field(
        about="The partitions that the leader gave to this member, in the language of the assignor."
    )


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+", kips={2: 219, 3: 345, 4: 482}):
    """Shows that a member of a classic group is alive."""

    group_id: str = field()
    generation_id: int32 = field(
        about="The generation the member is in: if the group has moved on, the answer asks it to join again."
    )
    member_id: str = field()
    group_instance_id: str | None = field("3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+", kips={1: 124, 2: 219, 3: 345, 4: 482}):
    """Says whether the member still belongs to the generation."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field(about="0 while all is well; REBALANCE_IN_PROGRESS tells the member to join again.")


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+", kips={2: 219, 3: 345, 4: 482, 5: 800}):
    """Asks to remove a member from its group; from version 3 on, several members."""

    group_id: str = field()
    member_id: str = field(
        "0-2", about="The member that leaves, so that the group need not wait for its session to time out."
    )
    members: list[MemberIdentity] = field(
        "3+", about="The members to remove: a consumer names itself, and a tool may name several, also static ones."
    )

    class MemberIdentity(Struct):
        member_id: str = field(about="The member that leaves; empty to name a static member by its instance id alone.")
        group_instance_id: str | None = field(default=None)
        reason: str | None = field("5+", default=None, about="Why it leaves, for the broker's log.")


class LeaveGroupResponse(
    Message, api_key=13, versions="0-5", flexible="4+", kips={1: 124, 2: 219, 3: 345, 4: 482, 5: 800}
):
    """Says for each member whether it has left."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    members: list[MemberResponse] = field("3+", about="A result for each member that was named.")

    class MemberResponse(Struct):
        member_id: str = field()
        group_instance_id: str | None = field()
        error_code: int16 = field()


class DescribeGroupsRequest(
    Message, api_key=15, versions="0-6", flexible="5+", kips={2: 219, 3: 430, 4: 345, 5: 482, 6: 1043}
):
    """Asks for state and members of classic groups."""

    groups: list[str] = field(about="The groups to describe; the broker that is asked must coordinate them.")
    include_authorized_operations: bool = field(
        "3+", about="Also asks which operations on each group the client has rights for."
    )


class DescribeGroupsResponse(
    Message, api_key=15, versions="0-6", flexible="5+", kips={1: 124, 2: 219, 3: 430, 4: 345, 5: 482, 6: 1043}
):
    """Describes the groups. Metadata and assignments of members are opaque bytes."""

    throttle_time_ms: int32 = field("1+")
    groups: list[DescribedGroup] = field(about="A description of each group, or its error.")

    class DescribedGroup(Struct):
        error_code: int16 = field()
        error_message: str | None = field("6+", default=None)
        group_id: str = field()
        group_state: str = field(
            about="Where the group is in its life: Empty, PreparingRebalance, CompletingRebalance, Stable or Dead."
        )
        protocol_type: str = field(about='The kind of group: "consumer", "connect", or empty if it only keeps offsets.')
        protocol_data: str = field(about="The assignor that is in use; empty while the group has none.")
        members: list[DescribedGroupMember] = field(about="The members, with what they asked for and what they got.")
        authorized_operations: int32 = field("3+", default=-2147483648)

        class DescribedGroupMember(Struct):
            member_id: str = field()
            group_instance_id: str | None = field("4+", default=None)
            client_id: str = field()
            client_host: str = field()
            member_metadata: bytes = field(
                about="The member's subscription: of a consumer, it is ConsumerProtocolSubscription."
            )
            member_assignment: bytes = field(
                about="The member's partitions: of a consumer, it is ConsumerProtocolAssignment."
            )


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+", kips={2: 219, 3: 482, 4: 518, 5: 848}):
    """Asks for the groups that a broker coordinates, optionally by state and type."""

    states_filter: list[str] = field("4+", about='Only groups in these states, such as "Stable"; empty for all.')
    types_filter: list[str] = field(
        "5+", about='Only groups of these types, such as "classic" or "consumer"; empty for all.'
    )


class ListGroupsResponse(
    Message, api_key=16, versions="0-5", flexible="3+", kips={1: 124, 2: 219, 3: 482, 4: 518, 5: 848}
):
    """Lists the groups."""

    throttle_time_ms: int32 = field("1+")
    error_code: int16 = field()
    groups: list[ListedGroup] = field(
        about="The groups that this broker coordinates; a tool asks every broker, and puts the lists together."
    )

    class ListedGroup(Struct):
        group_id: str = field()
        protocol_type: str = field(
            about='The kind of group: "consumer", "connect", "share", or empty if it only keeps offsets.'
        )
        group_state: str = field("4+", about="Where the group is in its life, such as Stable or Empty.")
        group_type: str = field("5+", about="The protocol that the group speaks: classic, consumer, share or streams.")


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+", kips={0: 229, 1: 219, 2: 482}):
    """Asks to delete groups that have no members, with their offsets."""

    groups_names: list[str] = field(about="The groups to delete, with their offsets; groups with members are refused.")


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+", kips={0: 229, 1: 219, 2: 482, 3: 1331}):
    """Says for each group whether it was deleted."""

    throttle_time_ms: int32 = field()
    results: list[DeletableGroupResult] = field(about="A result for each group that was named.")

    class DeletableGroupResult(Struct):
        group_id: str = field()
        error_code: int16 = field()
        error_message: str | None = field("3+", default=None)
