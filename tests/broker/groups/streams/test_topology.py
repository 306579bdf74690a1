"""How many partitions and tasks a topology has, and what is missing. What a group says of it is in the wire's tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from minibroker.broker.groups.streams.topology import (
    ConfiguredTopology,
    HeartbeatStatus,
    Topology,
    check_topology_size,
    configure_topology,
    parse_topology,
)
from minibroker.broker.metadata.image import Image
from minibroker.broker.metadata.partitions import Partition, Topic
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.streams_groups import StreamsGroupHeartbeatRequest

Said = StreamsGroupHeartbeatRequest.Topology
TopicInfo = StreamsGroupHeartbeatRequest.TopicInfo
Group = Said.Subtopology.CopartitionGroup


def said(*subtopologies: Mapping[str, Any], epoch: int = 0) -> Topology:
    """Return a topology; its subtopologies have the ids 0, 1, and so on."""
    made = [
        Said.Subtopology(
            subtopology_id=str(number),
            source_topics=each.get("sources", []),
            repartition_sink_topics=each.get("sinks", []),
            repartition_source_topics=[
                TopicInfo(name=name, partitions=count) for name, count in each.get("reads", {}).items()
            ],
            state_changelog_topics=[TopicInfo(name=name) for name in each.get("changelogs", [])],
            copartition_groups=each.get("together", []),
        )
        for number, each in enumerate(subtopologies)
    ]
    whole = Said(epoch=epoch, subtopologies=made)
    check_topology_size(whole)
    return parse_topology(whole)


def image(**topics: int) -> Image:
    """Return an image with topics of these numbers of partitions."""
    made = Image()
    for name, count in topics.items():
        topic = Topic(name, name.encode().ljust(16, b"-"))
        topic.partitions += [Partition(topic, index, [1], [1], 1) for index in range(count)]
        made.add_topic(topic)
    return made


def tasks(found: ConfiguredTopology) -> dict[str, int]:
    """Return the number of tasks of each subtopology."""
    return {each: one.task_count for each, one in (found.subtopologies or {}).items()}


def test_a_subtopology_has_a_task_for_each_partition_of_its_largest_topic() -> None:
    found = configure_topology(
        said({"sources": ["a", "b"]}, {"sources": ["a"], "changelogs": ["c"]}), image(a=2, b=5, c=2)
    )
    assert found.is_ready
    assert tasks(found) == {"0": 5, "1": 2}
    assert [str(task.subtopology_id) for task in found.iterate_task_ids(stateful_only=True)] == ["1", "1"]


def test_repartition_topics_get_partition_counts_in_any_order_of_subtopologies() -> None:
    """Subtopology 0 reads what the last one writes, and so on."""
    found = configure_topology(
        said(
            {"reads": {"r1": 0}, "changelogs": ["c"]},
            {"reads": {"r2": 0}, "sinks": ["r1"]},
            {"sources": ["a"], "sinks": ["r2"]},
        ),
        image(a=3),
    )
    assert tasks(found) == {"0": 3, "1": 3, "2": 3}
    assert {name: topic.partition_count for name, topic in found.missing.items()} == {"r1": 3, "r2": 3, "c": 3}
    assert found.problem is not None and found.problem.status is HeartbeatStatus.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: c, r1, r2"


def test_an_application_may_set_the_partition_count_of_a_repartition_topic() -> None:
    found = configure_topology(said({"sources": ["a"], "sinks": ["r"]}, {"reads": {"r": 7}}), image(a=3))
    assert (tasks(found), found.missing["r"].partition_count) == ({"0": 3, "1": 7}, 7)


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"r": 0, "s": 0}, 4), ({"r": 0, "s": 6}, 6), ({"r": 5, "s": 6}, None)],
    ids=["the larger one", "the one that is said", "two that are said"],
)
def test_copartitioned_repartition_topics_have_equal_partition_counts(
    given: dict[str, int], expected: int | None
) -> None:
    together = [Group(repartition_source_topics=[0, 1])]
    found = configure_topology(
        said(
            {"sources": ["a"], "sinks": ["r"]},
            {"sources": ["b"], "sinks": ["s"]},
            {"reads": given, "together": together},
        ),
        image(a=4, b=2),
    )
    if expected is None:
        assert found.problem is not None and found.problem.status is HeartbeatStatus.INCORRECTLY_PARTITIONED_TOPICS
        assert found.problem.detail == "Following topics do not have the same number of partitions: [{r=5, s=6}]"
    else:
        assert {name: topic.partition_count for name, topic in found.missing.items()} == dict.fromkeys(given, expected)


def test_the_error_names_only_some_of_many_missing_source_topics() -> None:
    found = configure_topology(said({"sources": ["d", "b", "a", "c", "e"]}), image())
    assert found.problem is not None
    assert found.problem.detail == "Source topics a, b, c and 2 additional topics are missing."
    assert (found.subtopologies, found.missing) == (None, {})


@pytest.mark.parametrize(
    "wrong",
    [
        said({"sources": ["a"]}, {"changelogs": ["c"]}),
        said({"sources": ["a"], "together": [Group(source_topics=[1])]}),
        said({"sources": ["a"], "together": [Group(source_topics=[-1])]}),
    ],
    ids=["no source", "an index too high", "a negative index"],
)
def test_an_invalid_topology_is_rejected(wrong: Topology) -> None:
    with pytest.raises(KafkaError) as raised:
        configure_topology(wrong, image(a=1))
    assert raised.value.code == ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_topologies_are_equal_in_any_order_of_their_subtopologies() -> None:
    one = said({"sources": ["a"]}, {"sources": ["b"]})
    other = Topology(type(one.value)(epoch=0, subtopologies=one.value.subtopologies[::-1]))
    assert one == other
    assert one != said({"sources": ["a"]}, {"sources": ["b"]}, epoch=1)
    assert one.subtopology_ids == {"a": "0", "b": "1"}


def test_each_topic_of_a_long_chain_of_subtopologies_is_visited_once() -> None:
    """In the worst order, each step would look at all subtopologies again."""
    count = 450
    chain = [{"reads": {f"r{number:03}": 0}, "sinks": [f"r{number + 1:03}"]} for number in reversed(range(1, count))]
    found = configure_topology(said(*chain, {"sources": ["a"], "sinks": ["r001"]}), image(a=2))
    assert set(tasks(found).values()) == {2}
