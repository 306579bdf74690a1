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

from typing import Final

from minibroker.broker.lifecycle import StartError
from minibroker.protocol.errors import KafkaError
from minibroker.testing.loops import NotRunning
from minibroker.testing.seen.waiting import Expired

EVERYWHERE: Final = {
    400: "A value is invalid, or the body is not JSON",
    403: "The page of another site asks",
    409: "The broker rejects the request, with Kafka's name of the error, or is down",
    422: "A field is missing, unknown, or of the wrong type",
}
GUARDED: Final = {401: "The token is missing or wrong"}
MISSING: Final = {404: "There is no such number"}
WAITED: Final = {408: "The wait timed out; the message reports the progress"}


def make_status_name_and_message(error: Exception) -> tuple[int, str, str] | None:
    """Return the status, the name and the message of an error that a test made or waited for, None for a bug."""
    text = str(error)
    match error:
        case KafkaError():
            return 409, error.code.name, error.message or error.code.name
        case AssertionError():
            return 408, "EXPIRED" if isinstance(error, Expired) else "NOT_SO", text
        case LookupError():
            return 404, "NOT_FOUND", str(error.args[0]) if error.args else "there is no such thing"
        case ValueError():
            return 400, "WRONG", text
        case StartError():
            return 409, "NOT_STARTED", text
        case RuntimeError():
            return 409, "NOT_RUNNING" if isinstance(error, NotRunning) else "NOT_NOW", text
    return None
