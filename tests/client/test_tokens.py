"""Tokens for OAUTHBEARER: where they come from, and that they are kept as long as they are valid."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from minibroker.client.client_errors import SettingError, TokenError
from minibroker.client.credentials import ANSWER_BYTES, make_token_source
from tests.cases import for_each

URL = "sasl.oauthbearer.token.endpoint.url"


class Endpoint(BaseHTTPRequestHandler):
    """Gives tokens to `me` with the secret `s`, and keeps what it was asked."""

    asked: list[tuple[str, str]] = []
    life_s = 3600
    padding = b""

    def do_GET(self) -> None:
        """Answer who follows a redirection: as for an unknown client, with what came of the secret."""
        self.asked.append((self.headers["Authorization"] or "", ""))
        self.send_error(401)

    def do_POST(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
            self.end_headers()
            return
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], form))
        allowed = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s").decode()
        body = json.dumps({"access_token": f"token-{len(self.asked)}", "expires_in": self.life_s}).encode()
        body = self.padding + body
        self.send_response(200 if allowed else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    Endpoint.asked, Endpoint.life_s, Endpoint.padding = [], 3600, b""
    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token"
        server.shutdown()
        thread.join()


def test_a_token_is_requested_once_while_it_is_valid(endpoint: str) -> None:
    module = {"clientId": "me", "clientSecret": "s", "scope": "a b", "extension_cluster": "c1"}
    tokens = make_token_source(module, {URL: endpoint})
    assert [tokens.get_token(), tokens.get_token()] == ["token-1", "token-1"]
    assert tokens.get_extensions() == {"cluster": "c1"}
    assert [form for _, form in Endpoint.asked] == ["grant_type=client_credentials&scope=a+b"]


def test_a_token_without_a_lifetime_is_requested_each_time(endpoint: str) -> None:
    Endpoint.life_s = 0
    settings = {URL: endpoint, "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "s"}
    tokens = make_token_source({}, {**settings, "sasl.oauthbearer.extensions": "a=1, b=2"})
    assert [tokens.get_token(), tokens.get_token()] == ["token-1", "token-2"]
    assert tokens.get_extensions() == {"a": "1", "b": "2"}


def test_an_error_of_the_token_endpoint_is_reported(endpoint: str) -> None:
    with pytest.raises(TokenError, match=f"no token from {endpoint}: HTTPError: HTTP Error 401"):
        make_token_source({"clientId": "me", "clientSecret": "wrong"}, {URL: endpoint}).get_token()


def test_the_client_secret_is_not_sent_to_a_redirected_address(endpoint: str) -> None:
    with pytest.raises(TokenError, match="HTTP Error 401"):
        make_token_source(
            {"clientId": "me", "clientSecret": "s"}, {URL: endpoint.replace("/token", "/moved")}
        ).get_token()
    assert Endpoint.asked == [("", "")]


def test_only_the_beginning_of_an_endless_token_response_is_read(endpoint: str) -> None:
    Endpoint.padding = b" " * ANSWER_BYTES
    with pytest.raises(TokenError, match="no token from .*: JSONDecodeError"):
        make_token_source({"clientId": "me", "clientSecret": "s"}, {URL: endpoint}).get_token()


def test_a_token_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    tokens = make_token_source({}, {URL: file.as_uri()})
    for content in ("one\n", "two"):
        file.write_text(content)
        assert tokens.get_token() == content.strip()


def test_an_unsecured_token_has_the_given_claims() -> None:
    module = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    header, claims, signature = make_token_source(module, {}).get_token().split(".")
    read = json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    assert (read["sub"], read["level"], read["exp"] - read["iat"], signature) == ("alice", 3, 60, "")


@for_each(
    ("module", "settings", "message"),
    [
        ({"clientId": "me"}, {URL: "https://tokens"}, "must give clientId and clientSecret"),
        ({"clientId": "me", "clientSecret": "s", "colour": "red"}, {URL: "https://tokens"}, "unknown option colour"),
        ({"clientId": "me", "clientSecret": "s"}, {}, "unknown option clientId"),
        (
            {"clientId": "me", "clientSecret": "s", "ssl.colour": "red"},
            {URL: "https://tokens"},
            "unknown option ssl.colour",
        ),
        (
            {"clientId": "me", "clientSecret": "s"},
            {URL: "https://tokens", "https.ca.pem": "x"},
            "ssl.truststore.certificates has no certificates in PEM",
        ),
        ({"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginNumberClaim_n": "x"}, {}, "must be a number, not 'x'"),
        ({}, {URL: "file:///token", "sasl.oauthbearer.method": "magic"}, "method must be oidc or default"),
        ({}, {URL: "file:///token", "sasl.oauthbearer.extensions": "a"}, "extensions must be name=value"),
        (
            {},
            {URL: "file:///token", "enable.sasl.oauthbearer.unsecure.jwt": "true"},
            "enable.sasl.oauthbearer.unsecure.jwt is for unsecured tokens, which do not come from",
        ),
        ({}, {}, f"^{URL} is missing: OAUTHBEARER needs it"),
    ],
)
def test_invalid_token_settings_are_rejected(module: dict[str, str], settings: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make_token_source(module, settings)
