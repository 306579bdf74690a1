"""An application as ASGI has it: bodies with limits, and answers in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

from minibroker.web.asgi import STRANGERS_BYTES, AsgiApplication
from minibroker.web.messages import Answer, Request, RequestRefused, make_text_answer

Message = MutableMapping[str, Any]


class Client:
    """A client that sends messages, and then waits."""

    def __init__(self, *messages: Message) -> None:
        self.messages, self.answers = list(messages), list[Message]()
        self.has_left = asyncio.Event()

    async def receive(self) -> Message:
        if self.messages:
            return self.messages.pop(0)
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.answers.append(message)

    async def ask(self, application: AsgiApplication, method: str = "POST", **headers: str) -> dict[str, str]:
        """Ask; return the headers of the answer."""
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": "/a%2Fb", "query_string": b"x=1", "headers": pairs}
        await application(scope, self.receive, self.send)
        return {name.decode(): value.decode() for name, value in self.answers[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.answers)


def piece(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": content, "more_body": more}


async def echoed(request: Request) -> Answer:
    try:
        return make_text_answer(f"{request.path} {request.query_string} {(await request.read(9)).decode()}")
    except RequestRefused as error:
        return make_text_answer(error.message, error.status)


async def test_a_request_body_is_received_in_pieces() -> None:
    client = Client(piece(b"one", more=True), piece(b"two"))
    headers = await client.ask(AsgiApplication(echoed), **{"content-length": "6"})
    assert client.body == b"/a/b x=1 onetwo" and headers["content-length"] == "15" and "connection" not in headers


async def test_a_too_large_or_too_slow_request_body_is_rejected() -> None:
    for messages, status in (([piece(b"0123456789", more=True)], 413), ([piece(b"0", more=True)], 408)):
        client = Client(*messages)
        headers = await client.ask(AsgiApplication(echoed, body_seconds=0.01), **{"transfer-encoding": "chunked"})
        assert (client.answers[0]["status"], headers["connection"]) == (status, "close")


async def test_an_unneeded_request_body_is_read_only_if_it_is_small() -> None:
    async def refused(_: Request) -> Answer:
        return make_text_answer("no", 401)

    client = Client(piece(bytes(STRANGERS_BYTES)))
    assert "connection" not in await client.ask(AsgiApplication(refused), **{"content-length": str(STRANGERS_BYTES)})
    client = Client(piece(bytes(STRANGERS_BYTES), more=True), piece(b"0", more=True), piece(b"?"))
    assert (await client.ask(AsgiApplication(refused), **{"transfer-encoding": "chunked"}))["connection"] == "close"
    assert client.messages == [piece(b"?")]


async def test_the_response_to_head_has_no_body() -> None:
    client = Client(piece(b""))
    assert (await client.ask(AsgiApplication(echoed), "HEAD"))["content-length"] == "9"
    assert client.body == b""


async def test_a_streamed_response_ends_when_its_client_disconnects() -> None:
    has_ended = asyncio.Event()

    async def forever() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"."
                await asyncio.sleep(0)
        finally:
            has_ended.set()

    async def stream(_: Request) -> Answer:
        return Answer(forever(), kind="text/event-stream")

    client = Client(piece(b""))
    asking = asyncio.create_task(client.ask(AsgiApplication(stream), "GET"))
    while len(client.answers) < 3:
        await asyncio.sleep(0)
    client.has_left.set()
    async with asyncio.timeout(60):
        await asking
    assert client.body.startswith(b"..")


async def test_a_streamed_response_can_end_without_a_disconnect() -> None:
    async def two() -> AsyncIterator[bytes]:
        yield b"1"
        yield b"2"

    async def stream(_: Request) -> Answer:
        return Answer(two())

    client = Client(piece(b""))
    await client.ask(AsgiApplication(stream), "GET")
    assert client.body == b"12" and client.answers[-1].get("more_body", False) is False
