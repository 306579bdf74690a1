"""The explorer shows what passes a proxy: frames that are known, and frames that are not."""

from __future__ import annotations

import asyncio

import pytest

from minibroker.explorer.explorer_routes import make_frames_app
from minibroker.explorer.frames_view import FrameFeed
from tests.asking_applications import Asking
from tests.proxy.upstreams import PATIENCE_S, answer, connected, exactly, request

pytestmark = pytest.mark.usefixtures("leaves_sockets")
METADATA, UNKNOWN_API = 3, 999


def test_known_and_unknown_frames_are_shown_with_their_bytes() -> None:
    with connected() as (proxy, client, node):
        page = Asking(make_frames_app(proxy, asyncio.Event()))
        asked = [request(UNKNOWN_API, 0, 1, b"what?"), request(METADATA, 1, 2, b"\0\0\0\0"), request(METADATA, 99, 3)]
        answered = [answer(1, b"that"), answer(2, bytes(12)), answer(3)]
        for question, said in zip(asked, answered, strict=True):
            client.sendall(question)
            assert exactly(node, len(question)) == question
            node.sendall(said)
            assert exactly(client, len(said)) == said
        proxy.wait_for_requests(count=3, timeout=PATIENCE_S)
        assert page.get("/explorer/api/about").json["views"] == ["frames"]
        assert page.get("/explorer/").status == 200
        unknown, known, newer = (page.get(f"/explorer/api/frames/{number}").json for number in (1, 2, 3))
        assert known["row"][1:3] == ["Metadata", 1] and known["answer"]["rows"][0]["name"] == "response"
        assert unknown["row"][1] == "API 999" and "there is no API 999" in unknown["answer"]["rows"][0]["problem"]
        assert newer["title"] == "Metadata version 99"


def test_an_unreadable_request_does_not_end_the_stream_of_frames() -> None:
    with connected() as (proxy, client, node):
        page = Asking(make_frames_app(proxy, asyncio.Event()))
        asked = request(METADATA, 1, 1, b"\x7f\xff\xff\xff")
        client.sendall(asked)
        assert exactly(node, len(asked)) == asked
        node.sendall(answer(1, b"?"))
        exactly(client, 9)
        (exchange,) = proxy.wait_for_requests(count=1, timeout=PATIENCE_S)
        assert (exchange.request, exchange.answer, exchange.groups) == (None, None, frozenset())
        assert exchange.request_bytes == asked[4:]
        portion = asyncio.run(FrameFeed(proxy.journal, proxy.get_topic_name).take_next_portion())
        assert portion is not None and portion["rows"][0][1] == "Metadata"
        shown = page.get("/explorer/api/frames/1").json
        assert any("problem" in row for row in shown["request"]["rows"])
