"""A client of a registry's HTTP API that hides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

V1 = "application/vnd.schemaregistry.v1+json"


class Answered(NamedTuple):
    """An answer. The body is what its JSON says."""

    status: int
    body: Any
    kind: str

    @property
    def code(self) -> int:
        """The code of the error."""
        return int(self.body["error_code"])


class Asking:
    """Sends requests to a registry, each on a connection of its own."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answered:
        """Send a request; a body is sent as JSON."""
        where = urlsplit(self.url)
        connection = HTTPConnection(str(where.hostname), where.port, timeout=30)
        try:
            data = raw if body is None else json.dumps(body).encode()
            connection.request(method, path, data, {"Content-Type": V1, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return Answered(answer.status, json.loads(text or b"null"), answer.headers["Content-Type"])
        finally:
            connection.close()

    def get(self, path: str) -> Answered:
        """Send a GET."""
        return self.ask("GET", path)

    def put(self, path: str, body: Any) -> Answered:
        """Send a PUT."""
        return self.ask("PUT", path, body)

    def delete(self, path: str) -> Answered:
        """Send a DELETE."""
        return self.ask("DELETE", path)

    def post(self, path: str, schema: Any, **more: Any) -> Answered:
        """Post a schema, which is sent as the text of its JSON."""
        return self.ask("POST", path, {"schema": json.dumps(schema), **more})

    def register(self, subject: str, schema: Any, **more: Any) -> Answered:
        """Register a schema."""
        return self.post(f"/subjects/{subject}/versions", schema, **more)


def record(name: str, *fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """Return an Avro record; fields named with a "?" have the default null."""
    listed = [
        {"name": field.rstrip("?"), "type": ["null", kind], "default": None}
        if field.endswith("?")
        else {"name": field, "type": kind}
        for field, kind in fields
    ]
    return {"type": "record", "name": name, "fields": listed, **more}
