"""A client of any schema registry with Confluent's API, for commands: one request after the other, no threads."""

from __future__ import annotations

import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import BadStatusLine, HTTPException, HTTPMessage
from typing import IO, Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from minibroker.registry.api.http_messages import V1
from minibroker.registry.decoding import WireSchema
from minibroker.registry.formats.schema import Reference
from minibroker.registry.state.schema_formats import DEPTH_MAX
from minibroker.registry.state.schema_records import parse_references

TIMEOUT_S: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 << 20
IN_CONTEXT: Final = {"referenceFormat": "qualified"}  # references with the context that they are in


class RequestFailed(Exception):
    """The registry refused a request, or is not there; the message is one line. `code` is 0 without an answer."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code


class RegistryClient:
    """A client. The URL may have a name and a password."""

    def __init__(
        self, url: str, token: str | None = None, authority: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        """`authority` is a file with certificates (PEM) to trust instead of the system's. Raises OSError."""
        self._timeout_s = timeout_s
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host = parts.netloc.rpartition("@")[2]
        self._base = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
        self._headers = {"Content-Type": V1, "Accept": V1}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        handlers: list[urllib.request.BaseHandler] = [_Redirects()]
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=authority)))
        self._opener = urllib.request.build_opener(*handlers)

    def send_request(self, method: str, *path: str, body: Any = None, query: Mapping[str, object] | None = None) -> Any:
        """Send a request to a path of these segments; return the answer's JSON. Raises RequestFailed."""
        pairs = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in (query or {}).items())
        url = self._base + "".join(f"/{quote(part, safe='')}" for part in path) + (f"?{pairs}" if pairs else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, self._headers, method=method)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return json.loads(answer.read(ANSWER_BYTES_MAX) or b"null")
        except urllib.error.HTTPError as error:
            with error:
                raise _make_request_failed_error(error) from None
        except ValueError:
            raise RequestFailed(f"{self._base} is no schema registry: its answer is not JSON") from None
        except (OSError, HTTPException) as error:
            raise RequestFailed(self._describe_connection_error(error)) from None

    def _describe_connection_error(self, error: OSError | HTTPException) -> str:
        """Return why there is no answer."""
        reason = getattr(error, "reason", error)  # urllib wraps what happens before the request is sent
        if isinstance(reason, TimeoutError):
            return f"cannot connect to {self._base}: no answer in {self._timeout_s:g} s"
        if type(reason) is BadStatusLine:
            return f"cannot connect to {self._base}: the server does not speak HTTP"
        return f"cannot connect to {self._base}: {getattr(reason, 'strerror', None) or reason}"

    def fetch_list(self, *path: str, query: Mapping[str, object]) -> list[Any]:
        """Return a list that the registry answers in pages, or at once if it knows none. Raises RequestFailed."""
        found: list[Any] = []
        while True:
            part = self.send_request("GET", *path, query={**query, "offset": len(found)})
            if not isinstance(part, list):
                raise RequestFailed("the registry's answer is no list")
            if not part or part[0] in found[:1]:
                return found
            found += part

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, RequestFailed."""
        path = ("ids", str(id_or_guid)) if isinstance(id_or_guid, int) else ("guids", id_or_guid)
        try:
            answer = self.send_request("GET", "schemas", *path, query=IN_CONTEXT)
        except RequestFailed as error:
            if error.code == 40403:
                raise LookupError(id_or_guid) from None
            raise
        text, referenced = _parse_schema(answer)
        references: dict[str, str] = {}
        self._resolve_references(referenced, references, set(), 0)
        return WireSchema(str(answer.get("schemaType") or "AVRO"), text, references)

    def _resolve_references(
        self, references: tuple[Reference, ...], texts: dict[str, str], visited: set[str], depth: int
    ) -> None:
        """Add to `texts` the schemas that references name, each after those that it refers to. Raises RequestFailed."""
        if depth > DEPTH_MAX:
            raise RequestFailed(f"references are more than {DEPTH_MAX} deep")
        for name, subject, version in references:
            if name not in visited:
                visited.add(name)
                text, referenced = _parse_schema(
                    self.send_request("GET", "subjects", subject, "versions", str(version), query=IN_CONTEXT)
                )
                self._resolve_references(referenced, texts, visited, depth + 1)
                texts[name] = text


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and tells credentials to no other server, as `urllib` would."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Follow a redirection, without the credentials if it leads to another server."""
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        if followed is not None and urlsplit(newurl)[:2] != urlsplit(req.full_url)[:2]:
            followed.remove_header("Authorization")
        return followed


def _parse_schema(answer: Any) -> tuple[str, tuple[Reference, ...]]:
    """Return the text and the references of a schema in an answer. Raises RequestFailed."""
    text = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        raise RequestFailed("the registry's answer is no schema")
    try:
        return text, parse_references(answer.get("references"))
    except ValueError as error:
        raise RequestFailed(f"the registry's answer is no schema: {error}") from None


def _make_request_failed_error(error: urllib.error.HTTPError) -> RequestFailed:
    try:
        said = json.loads(error.read(ANSWER_BYTES_MAX))
        return RequestFailed(f"{said['message']} ({said['error_code']})", int(said["error_code"]))
    except (ValueError, KeyError, TypeError):
        return RequestFailed(f"the registry answers {error.code} {error.reason}", error.code)
