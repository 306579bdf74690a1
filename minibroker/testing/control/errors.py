"""What goes wrong when the test kit is asked over HTTP: a status, and one object that says it.

400  it cannot be so: a duration, a fault, a topic's records
404  a snapshot or a fault that is not there
408  what was waited for has not come; the message says how far it came
409  the broker refuses it, with Kafka's name of the error, or is down
"""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from minibroker.broker.running import StartError
from minibroker.protocol.errors import KafkaError
from minibroker.testing.loops import NotRunning
from minibroker.testing.waiting import Expired


def register(app: FastAPI) -> None:
    """Have the application answer errors so."""

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


def _answer(status: int, error: str, message: str) -> JSONResponse:
    return JSONResponse({"error": error, "message": message}, status)
