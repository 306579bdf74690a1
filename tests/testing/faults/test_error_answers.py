"""Errors that are put into the answer to the rest of a request."""

from __future__ import annotations

from minibroker.protocol.messages.share_fetch import ShareFetchResponse
from minibroker.testing.faults.error_answers import add_errors_of_rule
from minibroker.testing.faults.rules import Rule

Topic = ShareFetchResponse.ShareFetchableTopicResponse
T = b"t" * 16


def answer(*partitions: tuple[int, int]) -> ShareFetchResponse:
    return ShareFetchResponse(
        responses=[
            Topic(
                topic_id=T,
                partitions=[Topic.PartitionData(partition_index=index, error_code=code) for index, code in partitions],
            )
        ]
    )


def test_an_error_added_to_a_partition_replaces_its_answer() -> None:
    response = answer((0, 0), (1, 0))  # as behind a proxy, which cannot change the node's share session
    add_errors_of_rule(
        response, answer((0, 56), (1, 56)), Rule(topic="t", partition=1, error="KAFKA_STORAGE_ERROR"), lambda _: "t"
    )
    assert [(each.partition_index, each.error_code) for each in response.responses[0].partitions] == [(0, 0), (1, 56)]
