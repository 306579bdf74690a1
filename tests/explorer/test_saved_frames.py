"""Frames that were saved are shown without the broker that has seen them."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen, run
from typing import Any

import pytest
from confluent_kafka import Producer

from minibroker.explorer.frames_view import COLUMNS, FrameFeed
from minibroker.explorer.saved_frames import SavedFrames
from minibroker.protocol.apis import ApiKey
from minibroker.proxy import exploring
from minibroker.proxy.exploring import make_app_for_saved_exchanges
from minibroker.proxy.flows import FlowError, encode_exchange, encode_file_header, read_exchanges
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange
from tests.asking_applications import Asking
from tests.test_readme import environment


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the frames of a producer, as a journal writes them."""
    path = tmp_path_factory.mktemp("saved") / "session.frames"
    with Broker() as broker:
        broker.journal.on()
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "shop"})
        producer.produce("orders", "first")
        assert producer.flush(30) == 0
        broker.journal.save(path)
    return path


def rows(frames: SavedFrames) -> Iterator[dict[str, Any]]:
    feed = FrameFeed(frames, lambda _: None)
    while (portion := asyncio.run(feed.take_next_portion())) is not None:
        yield from (dict(zip(COLUMNS, values, strict=True)) for values in portion["rows"])


def exchange(number: int, frame: bytes = b"\0\3\0\11\0\0\0\1") -> Exchange:
    made = Exchange(number, ApiKey.METADATA, 9, 1, frame)
    made.outcome = "answered"
    return made


def test_saved_frames_are_listed_in_order_of_their_start() -> None:
    frames = SavedFrames(map(exchange, (7, 3, 10**30, 4)))
    assert [row["number"] for row in rows(frames)] == [1, 2, 3, 4]
    assert [frames.get_exchange(number) for number in (0, 5)] == [None, None]


def test_only_the_newest_saved_frames_within_the_limits_are_kept() -> None:
    assert len(SavedFrames(map(exchange, range(10)), max_frames=4).exchanges) == 4
    frames = SavedFrames([exchange(1, bytes(80)), exchange(2, bytes(50)), exchange(3, bytes(50))], max_bytes=100)
    assert [len(each.request_bytes) for each in frames.exchanges] == [50, 50]


def test_a_saved_frame_is_shown_with_fields_and_topic_name(saved: Path) -> None:
    page = Asking(make_app_for_saved_exchanges(saved, asyncio.Event()))
    about = page.get("/explorer/api/about").json
    assert (about["views"], about["path"]) == (["frames"], str(saved))
    produced = next(row for row in rows(SavedFrames(read_exchanges(saved))) if row["api"] == "Produce")
    frame = page.get(f"/explorer/api/frames/{produced['number']}").json
    row = dict(zip(COLUMNS, frame["row"], strict=True))
    assert (row["client_id"], row["topics"], row["outcome"]) == ("shop", {"orders": [0]}, "answered")
    assert frame["effects"][0]["text"] == "appended 1 record to orders-0 from offset 0 on"
    assert frame["answer"]["rows"][0]["meaning"].startswith("Produce version")
    assert page.get("/explorer/api/frames/99999").status == 404


def test_frames_saved_by_a_proxy_are_shown_whatever_their_bytes(tmp_path: Path) -> None:
    damaged = exchange(1, b"\0\3\0\11\0\0\0\1\xff\xff\xff\xff\xff")
    damaged.answer_bytes, damaged.faults = b"\xff", ("\u202e<script>",)
    (tmp_path / "it").write_bytes(encode_file_header("k:1") + encode_exchange(damaged, "k:1"))
    page = Asking(make_app_for_saved_exchanges(tmp_path / "it", asyncio.Event()))
    frame = page.get("/explorer/api/frames/1").json
    assert dict(zip(COLUMNS, frame["row"], strict=True))["faults"] == ["\\u202e<script>"]
    assert "problem" in json.dumps(frame["request"]) and "problem" in json.dumps(frame["answer"])


def test_the_explore_command_shows_a_file_of_frames(saved: Path) -> None:
    with Popen(["minibroker", "explore", str(saved)], stdout=PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split(" is explored at ")[1].strip()
        with urllib.request.urlopen(f"{url}api/frames/stream", timeout=30) as stream:
            assert stream.readline() == b"event: frames\n"
            assert any(b"Produce" in line for line in stream)  # not all rows come at once
        process.terminate()
        assert process.wait(30) == 0


def test_a_file_that_is_neither_log_nor_frames_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "it").write_text("hello")
    done = run(["minibroker", "explore", str(tmp_path / "it")], capture_output=True, text=True, env=environment())
    assert (done.returncode, "it, line 1: Expecting value" in done.stderr) == (2, True)


def test_a_file_of_frames_that_is_too_large_is_rejected_before_it_is_read(tmp_path: Path) -> None:
    large = tmp_path / "large.flows"
    with large.open("wb") as file:
        file.truncate(exploring.MOST_BYTES + 1)  # which takes no place on the disk
    with pytest.raises(FlowError, match=r"large.flows has 1,024 MiB, and 1,024 are read at most$"):
        make_app_for_saved_exchanges(large, asyncio.Event())
