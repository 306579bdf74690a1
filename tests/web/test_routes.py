"""Routes that are derived from functions: where their arguments come from, what is refused, and the description."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, TypedDict, Unpack

import pytest
from msgspec import Meta, Struct

from minibroker.quantities import Duration
from minibroker.web.application import Application
from minibroker.web.guard import RequestGuard
from minibroker.web.messages import Answer, Request
from minibroker.web.openapi import make_openapi_document
from minibroker.web.routes import Routes
from tests.asking_applications import Asking
from tests.cases import for_each


class Which(TypedDict, total=False):
    """Further conditions."""

    color: str
    where: Any


class Wish(Struct, forbid_unknown_fields=True):
    """A wish."""

    what: str
    times: int = 1


class Shape(Struct):
    """A shape."""

    corners: list[tuple[int, int]]


class Kettle:
    """What has verbs."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def heat(self, to: int, within: Duration = "1 s", *, shape: str = "round") -> list[str]:
        """Heat the water; return what happened. Raises ValueError.

        More is for readers of Python.
        """
        if to > 100:
            raise ValueError("that is steam")
        return [self.name, str(to), str(within), shape]


def routes() -> Routes:
    found = Routes("/k", tag="kettles", kinds={"to": Meta(ge=0)})
    found.add_route(
        "POST", "/heat", Kettle("own").heat, "heat", body="Heat", answer="Happened.lines", without=("shape",)
    )

    def named(name: str) -> Kettle:
        return Kettle(name)

    of_other: dict[str, Any] = {"owner": named, "answer": "Happened.lines"}
    found.add_route("POST", "/{name}/heat", Kettle.heat, "heat_other", body="HeatOther", **of_other)

    @found.get("/list/{number}")
    async def listed(number: int, full: bool = False, **which: Unpack[Which]) -> dict[str, Any]:
        """List."""
        return {"number": number, "full": full, **which}

    found[-1].without = ("where",)

    @found.post("/wish/{mode}")
    def wish(mode: Literal["loud", "quiet"], asked: Wish | None = None) -> None:
        """Wish."""
        seen.append((mode, asked))

    @found.post("/free")
    def free(**anything: Any) -> Mapping[str, Any]:
        """Take anything."""
        return anything

    @found.get("/shape")
    def shape() -> Shape:
        """Return a shape."""
        return Shape([(0, 1)])

    @found.get("/stream")
    def stream() -> Answer:
        """Come in pieces."""
        return Answer(pieces(), kind="text/plain")

    return found


async def pieces() -> AsyncIterator[bytes]:
    yield b"first, "
    yield b"second"


seen: list[Any] = []


def mistake(error: Exception) -> tuple[int, str, str] | None:
    return (400, "WRONG", str(error)) if isinstance(error, ValueError) else None


@pytest.fixture
def kettles() -> Asking:
    return Asking(Application(routes(), RequestGuard(), mistake))


def test_arguments_of_a_route_are_read_from_the_json_body(kettles: Asking) -> None:
    assert kettles.post("/k/heat", {"to": 90}).json == {"lines": ["own", "90", "1 s", "round"]}
    assert kettles.post("/k/heat", {"to": 90, "within": 200}).json["lines"][2] == "200 ms"
    assert kettles.post("/k/heat", {"to": 90, "within": "2 s"}).json["lines"][2] == "2 s"


def test_the_object_of_a_routed_method_is_made_from_the_path(kettles: Asking) -> None:
    assert kettles.post("/k/blue%2Fone/heat", {"to": 1, "shape": "flat"}).json["lines"] == [
        *("blue/one", "1", "1 s", "flat"),
    ]


def test_arguments_of_a_route_are_read_from_the_query(kettles: Asking) -> None:
    assert kettles.get("/k/list/3?full=true").json == {"number": 3, "full": True}
    assert kettles.get("/k/list/3?color=red&color=blue").json == {"number": 3, "full": False, "color": "blue"}


def test_a_body_can_be_a_single_optional_argument(kettles: Asking) -> None:
    seen.clear()
    for body in (None, b"null", {"what": "tea"}):
        assert kettles.post("/k/wish/loud", body).status == 204
    assert seen == [("loud", None), ("loud", None), ("loud", Wish("tea"))]
    assert kettles.post("/k/free", {"a": [1]}).json == {"a": [1]}


def test_a_response_can_be_sent_in_pieces(kettles: Asking) -> None:
    assert kettles.get("/k/stream").body == b"first, second"


@for_each(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/k/heat", None, 422, "body: Field required"),
        ("POST", "/k/heat", {}, 422, "body.to: Field required"),
        ("POST", "/k/heat", {"to": True}, 422, "body.to: must be an integer, not True"),
        ("POST", "/k/heat", {"to": -1}, 422, "body.to: must be an integer >= 0, not -1"),
        ("POST", "/k/heat", {"to": 1, "within": True}, 422, "body.within: must be a duration, not True"),
        ("POST", "/k/heat", {"to": 1, "shape": "flat"}, 422, "body.shape: there is no such field"),
        ("POST", "/k/heat", {"to": 101}, 400, "that is steam"),
        ("POST", "/k/heat", b"{to", 422, "body: not JSON: object keys must be strings (byte 1)"),
        ("POST", "/k/heat", [1], 422, "body: must be an object"),
        ("POST", "/k/wish/soft", None, 422, "path.mode: must be 'loud' or 'quiet', not 'soft'"),
        ("GET", "/k/list/x", None, 422, "path.number: must be an integer, not 'x'"),
        ("GET", "/k/list/1?full=maybe", None, 422, "query.full: must be true or false, not 'maybe'"),
        ("GET", "/k/list/1?where=there", None, 422, "query.where: there is no such field"),
        ("GET", "/k/nothing", None, 404, "Not Found"),
        ("GET", "/k/list/", None, 404, "Not Found"),
    ],
)
def test_the_error_for_an_invalid_parameter_is_one_line(
    kettles: Asking, method: str, path: str, body: Any, status: int, message: str
) -> None:
    answer = kettles.ask(method, path, body)
    assert (answer.status, answer.json["message"]) == (status, message)


def test_a_body_of_another_content_type_is_rejected(kettles: Asking) -> None:
    """A page of another site may send text, without asking first."""
    assert kettles.ask("POST", "/k/heat", {"to": 1}, **{"content-type": "text/plain"}).status == 422
    assert kettles.ask("POST", "/k/heat", {"to": 1}, **{"content-type": "application/x+json; v=1"}).status == 200


def test_the_response_to_a_wrong_method_names_the_allowed_methods(kettles: Asking) -> None:
    assert kettles.ask("OPTIONS", "/k/heat").headers == {"allow": "POST"}
    refused = kettles.post("/k/stream")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert kettles.ask("HEAD", "/k/list/1").status == 200


def test_a_path_with_an_extra_trailing_slash_is_redirected(kettles: Asking) -> None:
    moved = kettles.get("/k/list/a%2F1/?full=1")
    assert (moved.status, moved.headers["location"]) == (307, "/k/list/a%2F1?full=1")


def test_an_internal_error_is_logged_and_not_sent_to_the_client(caplog: pytest.LogCaptureFixture) -> None:
    found = Routes()

    @found.get("/bug")
    def bug() -> None:
        raise KeyError("secret")

    answer = Asking(Application(found, RequestGuard(), mistake)).get("/bug")
    assert answer.status == 500 and "secret" not in answer.text and "KeyError" in caplog.text


def test_the_guard_rejects_a_request_before_its_body_is_read() -> None:
    application = Application(routes(), RequestGuard("token"), mistake)

    async def rest(most_bytes: int) -> bytes:
        raise AssertionError("it was read")

    async def answered() -> Answer:
        return await application.answer(Request("POST", ["k", "heat"], headers={"content-length": "9"}, rest=rest))

    assert asyncio.run(answered()).status == 401


def test_the_openapi_document_describes_all_routes() -> None:
    told = make_openapi_document(
        routes(), {400: "wrong"}, {}, needs_token=True, title="Kettles", version="1", description=""
    )
    heat = told["paths"]["/k/heat"]["post"]
    assert heat["description"] == "Heat the water; return what happened."
    assert heat["requestBody"] == {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Heat"}}},
    }
    assert set(heat["responses"]) == {"200", "400"}
    schemas = told["components"]["schemas"]
    assert schemas["Heat"]["properties"]["to"] == {"type": "integer", "minimum": 0}
    assert schemas["Heat"]["properties"]["within"]["default"] == "1 s"
    assert (schemas["Heat"]["required"], schemas["Heat"]["additionalProperties"]) == (["to"], False)
    assert schemas["Happened"]["properties"] == {"lines": {"type": "array", "items": {"type": "string"}}}
    listed = told["paths"]["/k/list/{number}"]["get"]
    assert [(each["in"], each["name"], each["required"]) for each in listed["parameters"]] == [
        ("path", "number", True),
        ("query", "full", False),
        ("query", "color", False),
    ]
    assert schemas["Shape"]["properties"]["corners"]["items"] == {
        **{"type": "array", "minItems": 2, "maxItems": 2},
        "prefixItems": [{"type": "integer"}, {"type": "integer"}],
    }
    wish = told["paths"]["/k/wish/{mode}"]["post"]
    assert wish["parameters"][0]["schema"] == {"type": "string", "enum": ["loud", "quiet"]}
    assert "required" not in wish["requestBody"] and set(wish["responses"]) == {"204", "400"}
