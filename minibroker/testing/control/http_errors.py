"""The errors of the HTTP control: a status, and an object that explains it in one line.

400  an invalid value: a duration, a fault, a topic's records
401  a missing or wrong token
403  the page of another site
404  an unknown snapshot or fault
408  a wait that timed out; the message reports the progress
409  an error of the broker, with Kafka's name of the error; or the broker is down
413  a body of more than 64 MiB
422  a field that is missing, unknown, or of the wrong type
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from minibroker.broker.lifecycle import StartError
from minibroker.protocol.errors import KafkaError
from minibroker.testing.loops import NotRunning
from minibroker.testing.waiting import Expired


class ErrorAnswer(BaseModel):
    """An error: `error` is a name for programs, `message` a line for people."""

    error: str
    message: str


def _describe_status(status: int, description: str) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ErrorAnswer, "description": description}}


EVERYWHERE: Final = {
    **_describe_status(400, "A value is invalid, or the body is not JSON"),
    **_describe_status(403, "The page of another site asks"),
    **_describe_status(409, "The broker rejects the request, with Kafka's name of the error, or is down"),
    **_describe_status(422, "A field is missing, unknown, or of the wrong type"),
}
GUARDED: Final = _describe_status(401, "The token is missing or wrong")
MISSING: Final = _describe_status(404, "There is no such number")
SECRET: Final = re.compile("password|users")  # in the name of a field
WAITED: Final = _describe_status(408, "The wait timed out; the message reports the progress")


def register(app: FastAPI) -> None:
    """Register a handler for each kind of error."""

    @app.exception_handler(RequestValidationError)
    def not_understood(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _answer(422, "NOT_UNDERSTOOD", "; ".join(dict.fromkeys(map(_line, error.errors()))))

    @app.exception_handler(HTTPException)
    def refused_by_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _answer(error.status_code, HTTPStatus(error.status_code).name, error.detail, error.headers)

    @app.exception_handler(KafkaError)
    def refused(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, KafkaError)
        return _answer(409, error.code.name, error.message or error.code.name)

    @app.exception_handler(AssertionError)
    def expired(_: Request, error: Exception) -> JSONResponse:
        return _answer(408, "EXPIRED" if isinstance(error, Expired) else "NOT_SO", str(error))

    @app.exception_handler(LookupError)
    def missing(_: Request, error: Exception) -> JSONResponse:
        return _answer(404, "NOT_FOUND", str(error.args[0]) if error.args else "there is no such thing")

    @app.exception_handler(ValueError)
    def wrong(_: Request, error: Exception) -> JSONResponse:
        return _answer(400, "WRONG", str(error))

    @app.exception_handler(RuntimeError)
    def impossible(_: Request, error: Exception) -> JSONResponse:
        return _answer(409, "NOT_RUNNING" if isinstance(error, NotRunning) else "NOT_NOW", str(error))

    @app.exception_handler(StartError)
    def not_started(_: Request, error: Exception) -> JSONResponse:
        return _answer(409, "NOT_STARTED", str(error))


def _line(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with a field, and where it is; `loc` begins with "body", "path" or "query"."""
    where = ".".join(map(str, fault["loc"]))
    is_shown = fault["type"] not in ("missing", "json_invalid") and isinstance(fault["input"], str | int | float)
    given = f", not {fault['input']!r:.80}" if is_shown and not SECRET.search(where) else ""
    return f"{where}: {fault['msg']}{given}"


def _answer(status: int, error: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": error, "message": message}, status, headers)
