"""Streams groups (KIP-1071): joining, topologies and internal topics, assignments, offsets, and every code.

Every literal is what Apache Kafka 4.4 answers. The groups have no delays, which are its defaults.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.conftest import NewTopic
from conformance.wire.connection import Connection
from conformance.wire.groups import commit_request
from conformance.wire.requests import exists, metadata_of, repeated
from conformance.wire.streams_members import (
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_CLIENT_TAGS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    KeyValue,
    Member,
    Subtopology,
    Topology,
    configure,
    describe,
    internal,
    settle,
    subtopology,
    task_ids,
    tasks_of,
    told,
    topology,
    word_count,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import DeleteGroupsRequest, ListGroupsRequest
from minibroker.protocol.messages.offsets import OffsetFetchRequest
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

Error = tuple[int, str | None]


@pytest.fixture(autouse=True)
def without_delays(connection: Connection, group: str) -> None:
    configure(connection, group, initial_rebalance_delay_ms="0", assignment_interval_ms="0")


# --- one member -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_a_streams_group_member_joins_and_leaves(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    name = new_topic(3)
    member = Member(connection, group, "m-1", topology(subtopology("0", name)), "p-1")
    joined = member.join(version=version, client_tags=[KeyValue(key="zone", value="a")], rack_id="r")
    assert (joined.error_code, joined.error_message, joined.throttle_time_ms) == (0, None, 0)
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m-1", 2, 5000)
    assert (tasks_of(joined.active_tasks), joined.standby_tasks, joined.warmup_tasks) == ({"0": {0, 1, 2}}, [], [])
    assert (told(joined), joined.endpoint_information_epoch, joined.partitions_by_user_endpoint) == ([], 0, None)
    assert (joined.acceptable_recovery_lag_legacy, joined.task_offset_interval_ms) == (0, 60_000)
    assert joined.acceptable_recovery_lag == (10_000 if version >= 1 else -1)
    again = member.beat()
    assert (again.member_epoch, again.active_tasks, again.standby_tasks, again.warmup_tasks) == (2, None, None, None)
    described = describe(connection, group)
    assert (described.error_code, described.group_state) == (0, "Stable")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    assert described.authorized_operations == -(1 << 31)
    (seen,) = described.members
    assert (seen.member_id, seen.instance_id, seen.rack_id, seen.member_epoch) == ("m-1", None, "r", 2)
    assert (seen.client_id, seen.client_host, seen.topology_epoch) == ("wire", "/127.0.0.1", 0)
    assert (seen.process_id, seen.user_endpoint, seen.is_classic) == ("p-1", None, False)
    assert [(each.key, each.value) for each in seen.client_tags] == [("zone", "a")]
    assert (seen.task_offsets, seen.task_end_offsets) == ([], [])
    for assignment in (seen.assignment, seen.target_assignment):
        assert tasks_of(assignment.active_tasks) == {"0": {0, 1, 2}}
        assert (assignment.standby_tasks, assignment.warmup_tasks) == ([], [])
    left = member.ask(member_epoch=-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "m-1", -1)
    assert (left.heartbeat_interval_ms, left.active_tasks, told(left)) == (0, None, [])
    empty = describe(connection, group)
    assert (empty.group_state, empty.group_epoch, empty.assignment_epoch, empty.members) == ("Empty", 3, 3, [])
    assert empty.topology is not None


def test_a_member_that_rejoins_keeps_its_epoch(connection: Connection, name: str, group: str) -> None:
    member = Member(connection, group, "m-1", topology(subtopology("0", name)))
    member.join()
    again = member.join()
    assert (again.member_epoch, tasks_of(again.active_tasks)) == (2, {"0": {0}})


TASK = StreamsGroupHeartbeatRequest.TaskIds(subtopology_id="0", partitions=[0])
INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"member_id": " "}, (INVALID, "MemberId can't be empty.")),
        ({"group_id": ""}, (INVALID, "GroupId can't be empty.")),
        ({"rack_id": ""}, (INVALID, "RackId can't be empty.")),
        ({"rebalance_timeout_ms": -1}, (INVALID, "RebalanceTimeoutMs must be provided in first request.")),
        ({"active_tasks": [TASK]}, (INVALID, "ActiveTasks must be empty when (re-)joining.")),
        ({"active_tasks": None}, (INVALID, "ActiveTasks must be empty when (re-)joining.")),
        ({"standby_tasks": [TASK]}, (INVALID, "StandbyTasks must be empty when (re-)joining.")),
        ({"topology": None}, (INVALID, "Topology must be non-null when (re-)joining.")),
        ({"member_epoch": -2}, (INVALID, "InstanceId can't be null.")),
        ({"member_epoch": -3}, (INVALID, "MemberEpoch is -3, but must be greater than or equal to -2.")),
        ({"member_epoch": 1}, (INVALID, "Topology can only be provided when (re-)joining.")),
        (
            {"member_epoch": 1, "topology": None, "warmup_tasks": None},
            (INVALID, "If one task-type is non-null, all must be non-null."),
        ),
        (
            {"topology": topology(subtopology("0", "a", source_topic_regex=["a.*"]))},
            (INVALID, "Regular expressions for source topics are not supported yet."),
        ),
        (
            {"topology": topology(subtopology("0", "a", state_changelog_topics=[internal("b", 3)]))},
            (
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Changelog topic b must have an undefined partition count, but it is set to 3.",
            ),
        ),
        (
            {"topology": topology(subtopology("0", "__consumer_offsets"))},
            (
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
            ),
        ),
        (
            {"topology": topology(subtopology("0", "a b"))},
            (ErrorCode.STREAMS_INVALID_TOPOLOGY, "Topic names a b are not valid topic names."),
        ),
        (
            {"topology": topology(subtopology("0", "a b"), epoch=-1)},
            (ErrorCode.STREAMS_INVALID_TOPOLOGY, "Topic names a b are not valid topic names."),
        ),
        (
            {"topology": topology(subtopology("0", "a"), epoch=-1), "member_epoch": 1},
            (INVALID, "Topology can only be provided when (re-)joining."),
        ),
    ],
)
def test_an_invalid_streams_heartbeat_is_rejected(
    connection: Connection, name: str, group: str, fields: dict[str, Any], error: Error
) -> None:
    answer = Member(connection, group, "m-1", topology(subtopology("0", name))).join(**fields)
    assert (answer.error_code, answer.error_message) == error
    assert (answer.member_id, answer.member_epoch) == ("", 0)
    missing = describe(connection, group)
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group} not found.")


def test_unknown_members_and_epochs_are_rejected(connection: Connection, new_topic: NewTopic, group: str) -> None:
    member = Member(connection, group, "m-1", topology(subtopology("0", new_topic(2))))
    nobody = member.ask(member_epoch=1)
    assert (nobody.error_code, nobody.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Streams group {group} not found.",
    )
    member.join()
    other = Member(connection, group, "m-2", member.topology).ask(member_epoch=1)
    assert (other.error_code, other.error_message) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member m-2 is not a member of group {group}.",
    )
    for epoch, relation in ((3, "greater"), (1, "smaller")):
        fenced = member.ask(member_epoch=epoch)
        assert (fenced.error_code, fenced.error_message) == (
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {relation} member epoch ({epoch}) than the one known by the group "
            "coordinator (2). The member must abandon all its partitions and rejoin.",
        )
    for tasks, message in (
        ({"1": {0}}, "Subtopology 1 does not exist in the topology."),
        ({"0": {2}}, "Task 2 for subtopology 0 is invalid. Number of tasks for this subtopology: 2"),
    ):
        wrong = member.beat(active_tasks=task_ids(tasks))
        assert (wrong.error_code, wrong.error_message) == (INVALID, message)


# --- topologies -----------------------------------------------------------------------------------------------------


def test_internal_topics_are_created(connection: Connection, new_topic: NewTopic, group: str) -> None:
    name, repartition, changelog = new_topic(3), f"{group}-repartition", f"{group}-changelog"
    member = Member(connection, group, "m-1", word_count(name, group, cleanup_policy="compact"))
    joined = member.join()
    detail = f"Internal topics are missing: {changelog}, {repartition}"
    assert (joined.error_code, joined.member_epoch, joined.active_tasks) == (0, 2, [])
    assert told(joined) in ([(MISSING_INTERNAL_TOPICS, detail)], [(MISSING_INTERNAL_TOPICS, reversed_names(detail))])
    unready = describe(connection, group)
    assert (unready.group_state, unready.topology.epoch) == ("NotReady", 0)
    for topic in (repartition, changelog):
        repeated(lambda topic=topic: exists(connection, topic), bool)  # type: ignore[misc]
        assert len(metadata_of(connection, topic).partitions) == 3
    seen = settle(connection, group, member)
    assert (member.epoch, member.active) == (3, {"0": {0, 1, 2}, "1": {0, 1, 2}})
    first, second = seen.topology.subtopologies
    assert (first.subtopology_id, first.source_topics, first.repartition_sink_topics) == ("0", [name], [repartition])
    assert (second.subtopology_id, second.source_topics) == ("1", [])
    (read,), (kept,) = second.repartition_source_topics, second.state_changelog_topics
    assert (read.name, read.partitions, read.replication_factor) == (repartition, 3, 0)
    assert (kept.name, kept.partitions, kept.replication_factor) == (changelog, 3, 0)
    assert [(each.key, each.value) for each in kept.topic_configs] == [("cleanup.policy", "compact")]


def reversed_names(detail: str) -> str:
    """Return the message with its two names in the other order: Kafka's is that of a hash map."""
    start, names = detail.split(": ")
    return f"{start}: {', '.join(reversed(names.split(', ')))}"


def test_copartitioned_topics_are_created_with_equal_partition_counts(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    """A repartition topic has as many partitions as the topic that it is joined with."""
    name, other, repartition = new_topic(4), new_topic(2), f"{group}-repartition"
    joined = Subtopology.CopartitionGroup(source_topics=[0], repartition_source_topics=[0])
    said = topology(
        subtopology("0", other, repartition_sink_topics=[repartition]),
        subtopology("1", name, repartition_source_topics=[internal(repartition)], copartition_groups=[joined]),
    )
    member = Member(connection, group, "m-1", said)
    member.join()
    settle(connection, group, member)
    assert len(metadata_of(connection, repartition).partitions) == 4
    assert member.active == {"0": {0, 1}, "1": {0, 1, 2, 3}}


def joined_sources(name: str, other: str, *repartition: int) -> Topology:
    """Return a topology that joins two topics, or a topic with repartition topics of given numbers of partitions."""
    internals = [internal(f"{name}-{number}", count) for number, count in enumerate(repartition)]
    sources = [name] if repartition else [name, other]
    group = Subtopology.CopartitionGroup(
        source_topics=[*range(len(sources))], repartition_source_topics=[*range(len(internals))]
    )
    sinks = [each.name for each in internals]
    return topology(
        subtopology("0", other, repartition_sink_topics=sinks),
        subtopology("1", *sources, repartition_source_topics=internals, copartition_groups=[group]),
    )


@pytest.mark.parametrize("fixed", [(), (3,)], ids=["sources", "a repartition topic"])
def test_topics_that_are_not_copartitioned_are_reported(
    connection: Connection, new_topic: NewTopic, group: str, fixed: tuple[int, ...]
) -> None:
    name, other = sorted((new_topic(1), new_topic(2)))
    member = Member(connection, group, "m-1", joined_sources(name, other, *fixed))
    joined = member.join()
    count = len(metadata_of(connection, name).partitions)
    unequal = f"[{{{name}={count}, {other}={len(metadata_of(connection, other).partitions)}}}]"
    detail = (
        f"Number of partitions [3] of repartition topic [{name}-0] doesn't match number of partitions [{count}] of the "
        "source topic."
        if fixed
        else f"Following topics do not have the same number of partitions: {unequal}"
    )
    assert (joined.error_code, told(joined)) == (0, [(INCORRECTLY_PARTITIONED_TOPICS, detail)])
    assert (joined.member_epoch, joined.active_tasks) == (2, [])
    assert describe(connection, group).group_state == "NotReady"


def test_an_internal_topic_with_a_wrong_partition_count_is_reported(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    changelog = new_topic(1)
    said = topology(subtopology("0", new_topic(2), state_changelog_topics=[internal(changelog)]))
    joined = Member(connection, group, "m-1", said).join()
    detail = f"Existing topic {changelog} has different number of partitions: expected 2, found 1"
    assert told(joined) == [(INCORRECTLY_PARTITIONED_TOPICS, detail)]


def test_missing_source_topics_may_be_created_later(
    connection: Connection, new_name: Any, group: str, new_topic: NewTopic
) -> None:
    name = new_topic(1)
    later = f"wire-{int(name.removeprefix('wire-')) + 1}"  # the next one of new_topic
    member = Member(connection, group, "m-1", topology(subtopology("0", name), subtopology("1", later)))
    joined = member.join()
    assert told(joined) == [(MISSING_SOURCE_TOPICS, f"Source topics {later} are missing.")]
    assert (joined.error_code, joined.member_epoch, joined.active_tasks) == (0, 2, [])
    assert new_topic(2) == later
    settle(connection, group, member)
    assert member.active == {"0": {0}, "1": {0, 1}}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            topology(subtopology("0", "{name}", repartition_source_topics=[internal("r")])),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        ),
        (
            topology(
                subtopology("0", repartition_source_topics=[internal("a")], repartition_sink_topics=["b"]),
                subtopology("1", repartition_source_topics=[internal("b")], repartition_sink_topics=["a"]),
            ),
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved.",
        ),
    ],
    ids=["a topic that nobody writes to", "a loop"],
)
def test_an_invalid_topology_is_rejected(
    connection: Connection, name: str, group: str, said: Topology, message: str
) -> None:
    for each in said.subtopologies:
        each.source_topics = [source.format(name=name) for source in each.source_topics]
    answer = Member(connection, group, "m-1", said).join()
    assert (answer.error_code, answer.error_message) == (ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def test_a_member_with_another_topology_than_its_streams_group_is_rejected(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name, other = new_topic(2), new_topic()
    first = Member(connection, group, "m-1", topology(subtopology("0", name), epoch=1))
    first.join()
    for epoch in (1, 2):
        newer = Member(connection, group, "m-2", topology(subtopology("0", other), epoch=epoch)).join()
        assert (newer.error_code, newer.error_message) == (INVALID, "Topology updates are not supported yet.")
    older = Member(connection, group, "m-3", topology(subtopology("0", other), epoch=0)).join()
    detail = "The member's topology epoch 0 is behind the group's topology epoch 1."
    assert (older.error_code, told(older)) == (0, [(STALE_TOPOLOGY, detail)])


# --- several members --------------------------------------------------------------------------------------------------


def test_tasks_are_assigned_to_all_members(connection: Connection, new_topic: NewTopic, group: str) -> None:
    said = topology(subtopology("0", new_topic(4)))
    first, second = (Member(connection, group, f"m-{number}", said) for number in (1, 2))
    first.join()
    joined = second.join()
    assert (joined.member_epoch, joined.active_tasks) == (3, [])
    assert describe(connection, group).group_state == "Reconciling"
    revoked = first.beat()
    assert (revoked.member_epoch, len(tasks_of(revoked.active_tasks)["0"])) == (2, 2)
    assert second.beat().active_tasks is None
    done = first.beat()
    assert (done.member_epoch, done.active_tasks) == (3, None)
    taken = second.beat()
    assert (taken.member_epoch, len(tasks_of(taken.active_tasks)["0"])) == (3, 2)
    assert first.active["0"] | second.active["0"] == {0, 1, 2, 3}
    assert describe(connection, group).group_state == "Stable"
    first.ask(member_epoch=-1)
    back = repeated(second.beat, lambda answer: answer.active_tasks is not None)
    assert (back.member_epoch, second.active) == (4, {"0": {0, 1, 2, 3}})


def test_standby_tasks_are_assigned_to_another_process(connection: Connection, new_topic: NewTopic, group: str) -> None:
    configure(connection, group, num_standby_replicas="1")
    said = word_count(new_topic(2), group)
    members = [Member(connection, group, f"m-{number}", said, f"p-{number // 2}") for number in range(4)]
    for member in members:
        member.join()
    settle(connection, group, *members)
    assert sorted(partition for member in members for partition in member.active.get("1", ())) == [0, 1]
    assert sorted(partition for member in members for partition in member.standby.get("1", ())) == [0, 1]
    assert not any("0" in member.standby for member in members)
    for member in members:
        for partition in member.standby.get("1", ()):
            (owner,) = (each for each in members if partition in each.active.get("1", ()))
            assert owner.process != member.process
    configure(connection, group, num_standby_replicas="0")
    epoch = members[0].epoch
    repeated(members[0].beat, lambda answer: describe(connection, group).group_epoch > epoch)
    settle(connection, group, *members)
    assert not any(member.standby for member in members)


def test_a_member_can_request_the_shutdown_of_its_application(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    said = topology(subtopology("0", new_topic(2)))
    first, second = (Member(connection, group, f"m-{number}", said) for number in (1, 2))
    first.join()
    second.join()
    detail = "Streams group member m-1 encountered a fatal error and requested a shutdown for the entire application."
    assert told(first.beat(shutdown_application=True)) == [(SHUTDOWN_APPLICATION, detail)]
    assert told(second.beat()) == [(SHUTDOWN_APPLICATION, detail)]


def test_endpoints_for_interactive_queries_are_returned(
    connection: Connection, new_topic: NewTopic, group: str
) -> None:
    name = new_topic(2)
    said = topology(subtopology("0", name))
    endpoint = StreamsGroupHeartbeatRequest.Endpoint(host="a", port=80)
    first = Member(connection, group, "m-1", said)
    joined = first.join(user_endpoint=endpoint)
    assert joined.endpoint_information_epoch == 0
    first.beat(endpoint_information_epoch=-1)
    answer = first.beat(endpoint_information_epoch=-1)
    (told_of,) = answer.partitions_by_user_endpoint
    assert (told_of.user_endpoint.host, told_of.user_endpoint.port) == ("a", 80)
    (active,) = told_of.active_partitions
    assert (active.topic, sorted(active.partitions), told_of.standby_partitions) == (name, [0, 1], [])


# --- its offsets and its end ------------------------------------------------------------------------------------------


def test_a_streams_member_commits_in_its_epoch(connection: Connection, name: str, group: str) -> None:
    member = Member(connection, group, "m-1", topology(subtopology("0", name)))
    member.join()

    def commit(epoch: int, version: int = 9, member_id: str = "m-1") -> int:
        request = commit_request(group, (name, 0, 5), generation_id_or_member_epoch=epoch, member_id=member_id)
        (topic,) = connection.ask(request, version).topics
        code: int = topic.partitions[0].error_code
        return code

    assert commit(2) == 0
    assert commit(3) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(2, member_id="m-2") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    Group = OffsetFetchRequest.OffsetFetchRequestGroup
    asked = Group.OffsetFetchRequestTopics(name=name, partition_indexes=[0])
    for member_id, epoch, code in (
        ("m-1", 2, 0),
        (None, -1, 0),
        ("m-1", 1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m-2", 2, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        one = Group(group_id=group, member_id=member_id, member_epoch=epoch, topics=[asked])
        (answer,) = connection.ask(OffsetFetchRequest(groups=[one]), 9).groups
        assert answer.error_code == code
    member.ask(member_epoch=-1)
    assert commit(-1, member_id="") == 0


def listed(connection: Connection, group: str, **filters: list[str]) -> list[tuple[str, str, str]]:
    """Return protocol type, state and type of the group if it is listed."""
    groups = connection.ask(ListGroupsRequest(**filters), 5).groups
    return [(each.protocol_type, each.group_state, each.group_type) for each in groups if each.group_id == group]


def test_a_streams_group_is_listed_and_deleted(connection: Connection, name: str, group: str) -> None:
    member = Member(connection, group, "m-1", topology(subtopology("0", name)))
    member.join()
    stable = [("streams", "Stable", "streams")]
    assert listed(connection, group) == listed(connection, group, types_filter=["Streams"]) == stable
    assert listed(connection, group, states_filter=["stable"]) == stable
    assert listed(connection, group, types_filter=["consumer"]) == []
    assert listed(connection, group, states_filter=["NotReady"]) == []
    delete = DeleteGroupsRequest(groups_names=[group])
    assert connection.ask(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    member.ask(member_epoch=-1)
    assert listed(connection, group, states_filter=["empty"]) == [("streams", "Empty", "streams")]
    assert connection.ask(delete, 2).results[0].error_code == 0
    assert describe(connection, group).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_that_rejoins_with_another_instance_id_releases_the_old_one(
    connection: Connection, name: str, group: str
) -> None:
    def member(member_id: str) -> Member:
        return Member(connection, group, member_id, topology(subtopology("0", name)))

    first = member("m-1")
    assert first.join(instance_id="i").error_code == 0
    assert first.join(instance_id="j").error_code == 0
    unknown = (ErrorCode.UNKNOWN_MEMBER_ID, "Instance id i is unknown.")
    for epoch in (first.epoch, -1, -2):
        answer = first.ask(member_epoch=epoch, instance_id="i")
        assert (answer.error_code, answer.error_message) == unknown
    assert first.ask(instance_id="j").error_code == 0
    assert member("m-2").join(instance_id="i").error_code == 0
    assert {(each.member_id, each.instance_id) for each in describe(connection, group).members} == {
        ("m-1", "j"),
        ("m-2", "i"),
    }


@pytest.mark.parametrize("version", [0, 1])
def test_members_without_the_client_tags_of_the_group_are_warned(
    connection: Connection, new_topic: NewTopic, group: str, version: int
) -> None:
    configure(connection, group, rack_aware_assignment_tags="zone,rack")
    member = Member(connection, group, "m-1", topology(subtopology("0", new_topic())))
    detail = (
        "Missing required client tags for rack-aware standby assignment: [rack]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    joined = member.join(version=version, client_tags=[KeyValue(key="zone", value="a")])
    assert told(joined) == ([(MISSING_CLIENT_TAGS, detail)] if version >= 1 else [])
