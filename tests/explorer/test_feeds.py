"""The live stream of frames does not hold the loop: a thread reads what is large."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest

from minibroker.explorer.answers_in_threads import LARGE_BYTES
from minibroker.explorer.frames_view import COLUMNS, FrameFeed
from minibroker.explorer.saved_frames import SavedFrames
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.testing.seen.exchange import SIZE_BYTES, Exchange
from minibroker.testing.seen.subjects import GetTopicName
from tests.broker.harness import frame_of

Topic = MetadataRequest.MetadataRequestTopic


def metadata(topics: int) -> Exchange:
    asked = MetadataRequest(topics=[Topic(topic_id=uuid4().bytes, name=None) for _ in range(topics)])
    made = Exchange(1, ApiKey.METADATA, 12, 1, frame_of(asked, 12)[SIZE_BYTES:])
    made.outcome = "answered"
    return made


def threads_that_name(threads: set[threading.Thread]) -> GetTopicName:
    """Return a function that names topics, and notes which threads ask for names."""

    def name_of(topic_id: bytes) -> str:
        threads.add(threading.current_thread())
        return topic_id.hex()

    return name_of


@pytest.mark.parametrize(("topics", "is_aside"), [(10, False), (LARGE_BYTES, True)])
async def test_large_frames_are_decoded_in_a_thread(topics: int, is_aside: bool) -> None:
    threads: set[threading.Thread] = set()
    portion = await FrameFeed(SavedFrames([metadata(topics)]), threads_that_name(threads)).take_next_portion()
    assert portion is not None
    row = dict(zip(COLUMNS, portion["rows"][0], strict=True))
    assert len(row["topics"]) == min(topics, 20)
    assert threads and (threading.current_thread() not in threads) is is_aside


def test_decoding_the_request_of_an_exchange_does_not_keep_it_in_memory() -> None:
    """It takes many times the memory of its bytes, by which the journal counts."""
    exchange = metadata(10)
    before = set(vars(exchange))
    assert exchange.request.topics[0].topic_id is not None and set(vars(exchange)) == before
