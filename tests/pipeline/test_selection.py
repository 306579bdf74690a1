"""Which partitions are selected by name, by pattern, one by one, and by nothing at all."""

from __future__ import annotations

import pickle

import pytest

from minibroker.pipeline.log_source import OptionError, TopicPartition, TopicSelection

ORDERS = [TopicPartition("orders", partition) for partition in (0, 2, 10)]
EUROPE = TopicPartition("orders-eu.v1", 0)
OFFSETS = TopicPartition("__consumer_offsets", 0)
METADATA = TopicPartition("__cluster_metadata", 0)
ALL = [ORDERS[2], METADATA, EUROPE, ORDERS[0], OFFSETS, ORDERS[1]]


def test_all_but_internal_topics_are_selected_by_default() -> None:
    assert TopicSelection().choose_partitions(ALL) == [*ORDERS, EUROPE]


def test_internal_topics_are_selected_only_by_name() -> None:
    assert TopicSelection(topics=("orders",)).choose_partitions(ALL) == ORDERS
    assert TopicSelection(topics=("orders", "__consumer_offsets")).choose_partitions(ALL) == [OFFSETS, *ORDERS]


def test_a_pattern_matches_anywhere_in_a_name_but_no_internal_topic() -> None:
    assert TopicSelection(pattern="ders").choose_partitions(ALL) == [*ORDERS, EUROPE]
    assert TopicSelection(pattern="^orders$").choose_partitions(ALL) == ORDERS
    assert TopicSelection(pattern=".*").choose_partitions(ALL) == [*ORDERS, EUROPE]
    assert TopicSelection(pattern="nothing").choose_partitions(ALL) == []


def test_only_the_assigned_partitions_are_selected() -> None:
    assert TopicSelection(assigned=(EUROPE, ORDERS[1], EUROPE)).choose_partitions(ALL) == [ORDERS[1], EUROPE]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (TopicSelection(topics=("orders", "order")), "subscribe: there is no order"),
        (TopicSelection(assigned=(TopicPartition("orders", 1),)), "assign: there is no orders-1"),
        (TopicSelection(pattern="("), r"subscribePattern: '\(' is not a regular expression"),
    ],
)
def test_an_invalid_selection_is_an_error_of_its_option(selection: TopicSelection, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        selection.choose_partitions(ALL)


def test_a_selection_can_be_pickled() -> None:
    selection = TopicSelection(topics=("orders",))
    assert pickle.loads(pickle.dumps(selection)) == selection
