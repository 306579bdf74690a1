"""What a heartbeat must say to be looked at: without it the answer is an error, in Kafka's words, and no group is made.

Heartbeats that say it, and fit the group or not, are in `test_heartbeat.py`.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.errors import ErrorCode
from tests.broker.groups.consumer.driving import GROUP, Player, TopicPartitions
from tests.broker.harness import Harness
from tests.cases import for_each


@for_each(
    ("fields", "version", "message"),
    [
        ({"member_id": ""}, 1, "MemberId can't be empty."),
        ({"member_id": " "}, 1, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": 1}, 0, "MemberId can't be empty."),
        ({"member_id": "", "member_epoch": -1}, 0, "MemberId can't be empty."),
        ({"group_id": ""}, 1, "GroupId can't be empty."),
        ({"instance_id": ""}, 1, "InstanceId can't be empty."),
        ({"rack_id": ""}, 0, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, 1, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, 1, "TopicPartitions must be empty when (re-)joining."),
        (
            {"topic_partitions": [TopicPartitions(topic_id=bytes(15) + b"\1", partitions=[0])]},
            1,
            "TopicPartitions must be empty when (re-)joining.",
        ),
        (
            {"subscribed_topic_names": None},
            1,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, 1, "InstanceId can't be null."),
        ({"member_epoch": -3}, 1, "MemberEpoch is invalid."),
    ],
)
def test_heartbeats_that_lack_required_fields_are_invalid(
    harness: Harness, topic: str, fields: dict[str, Any], version: int, message: str
) -> None:
    answer = Player(harness, "m1", topic).join(**fields, version=version)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert GROUP not in harness.cluster.groups.groups


def test_an_unknown_assignor_is_rejected(harness: Harness, topic: str) -> None:
    answer = Player(harness, "m1", topic).join(server_assignor="cooperative")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == "ServerAssignor cooperative is not supported. Supported assignors: uniform, range."
