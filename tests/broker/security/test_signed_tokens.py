"""Signed tokens, and the keys of their issuer: what Kafka's BrokerJwtValidator takes and refuses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from minibroker.broker.security.jwks import BYTES_MAX, KeySet, find_url_objection
from minibroker.broker.security.oauthbearer import TokenIdentity, TokenRefused
from minibroker.broker.security.signed_tokens import ExpectedClaims, SignedTokens
from tests.broker.manual_clock import ManualClock
from tests.cases import for_each

EXPECTED = ExpectedClaims(("kafka",), "https://issuer.test", 30_000, "sub", "scope")
ANY = ExpectedClaims((), None, 0, "sub", "scope")
REFRESH_MS, BACKOFF_MS, BACKOFF_MAX_MS = 3_600_000, 100, 1000


class Surroundings:
    def __init__(self, clock: ManualClock) -> None:
        self.now_ms = clock.wall_ms
        self.monotonic_ms = clock.monotonic_ms
        self.run_in_own_thread = clock.run_in_own_thread


@cache
def private_key(kind: str, name: str = "") -> Any:
    if kind.startswith("ES"):
        return ec.generate_private_key({"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}[kind])
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


def public_jwk(kind: str, key_id: str | None, name: str = "") -> dict[str, Any]:
    algorithm: Any = ECAlgorithm if kind.startswith("ES") else OKPAlgorithm if kind == "EdDSA" else RSAAlgorithm
    made: dict[str, Any] = algorithm.to_jwk(private_key(kind, name).public_key(), as_dict=True)
    return {**made, "use": "sig", **({} if key_id is None else {"kid": key_id})}


class Issuer:
    """A file with keys, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "jwks.json"
        self.clock = ManualClock()
        self.publish(public_jwk("RS256", "one"))

    def publish(self, *keys: Any) -> None:
        self.file.write_text(json.dumps({"keys": keys}))

    def tokens(self, expected: ExpectedClaims = EXPECTED, url: str | None = None) -> SignedTokens:
        keys = KeySet(url or self.file.as_uri(), REFRESH_MS, BACKOFF_MS, BACKOFF_MAX_MS)
        return SignedTokens(expected, keys, Surroundings(self.clock))

    def token(self, kind: str = "RS256", key_id: str | None = "one", name: str = "", **claims: Any) -> str:
        now_s = self.clock.wall_ms() // 1000
        said = {
            "sub": "alice",
            "iat": now_s,
            "exp": now_s + 60,
            "iss": "https://issuer.test",
            "aud": "kafka",
            "scope": "x",
            **claims,
        }
        said = {claim: value for claim, value in said.items() if value is not None}
        headers = None if key_id is None else {"kid": key_id}
        return jwt.encode(said, private_key(kind, name), algorithm=kind, headers=headers)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


def identity(tokens: SignedTokens, token: str) -> TokenIdentity:
    """Whose token it is, once its key has been looked for, as an exchange does."""
    wait = tokens.make_wait_for_key(token)
    if wait is not None:
        called: list[None] = []
        wait(lambda: called.append(None))
        assert called == [None]
    return tokens.get_identity_of_token(token)


@for_each("kind", ["RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"])
def test_a_token_signed_with_a_key_of_the_issuer_is_valid(issuer: Issuer, kind: str) -> None:
    issuer.publish(public_jwk("RS256", "other", "other"), public_jwk(kind, "one"))
    expires_ms = issuer.clock.wall_ms() + 60_000
    assert identity(issuer.tokens(), issuer.token(kind)) == TokenIdentity("alice", expires_ms)


def test_a_token_without_a_key_id_is_checked_with_all_keys(issuer: Issuer) -> None:
    issuer.publish(public_jwk("ES256", "other"), public_jwk("RS256", None))
    assert identity(issuer.tokens(), issuer.token(key_id=None)).name == "alice"


@for_each(
    "claims",
    [
        {"exp": None},
        {"iat": None},
        {"exp": 1_699_999_970},
        {"exp": 1_700_000_060, "iat": 1_700_000_061},
        {"nbf": 1_700_000_031},
        {"iss": None},
        {"iss": "https://other.test"},
        {"aud": None},
        {"aud": "other"},
        {"aud": ["a", "b"]},
        {"sub": None},
        {"sub": ""},
        {"scope": ["a", ""]},
        {"scope": ["a", "a"]},
        {"scope": ""},
    ],
)
def test_tokens_with_missing_or_wrong_claims_are_rejected(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        identity(issuer.tokens(), issuer.token(**claims))


@for_each(
    "claims",
    [
        {"exp": 1_699_999_971, "iat": 1_699_999_900},
        {"nbf": 1_700_000_030},
        {"aud": ["a", "kafka"]},
        {"scope": None},
        {"scope": ["a", "b"]},
        {"iat": 1_700_000_020},
    ],
)
def test_tokens_with_unusual_but_valid_claims_are_accepted(issuer: Issuer, claims: dict[str, Any]) -> None:
    assert identity(issuer.tokens(), issuer.token(**claims)).name == "alice"


@pytest.mark.parametrize("claims", [{"aud": None, "iss": None}, {}, {"aud": 7}])
def test_a_token_may_have_any_audience_and_issuer_unless_they_are_configured(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    assert identity(issuer.tokens(ANY), issuer.token(**claims)).name == "alice"


def test_the_principal_claim_name_is_configurable(issuer: Issuer) -> None:
    tokens = issuer.tokens(EXPECTED._replace(subject_claim="azp"))
    assert identity(tokens, issuer.token(azp=" bob ")).name == "bob"


def test_a_signature_of_another_key_is_rejected(issuer: Issuer) -> None:
    with pytest.raises(TokenRefused, match="no key of the issuer"):
        identity(issuer.tokens(), issuer.token(name="somebody else's"))


def test_a_token_without_a_signature_is_rejected(issuer: Issuer) -> None:
    unsigned = jwt.encode({"sub": "alice"}, None, algorithm="none", headers={"kid": "one"})
    with pytest.raises(TokenRefused):
        identity(issuer.tokens(), unsigned)


def test_a_token_signed_by_hmac_with_the_public_key_is_rejected(issuer: Issuer) -> None:
    """The old attack: sign by HMAC, with the public key as the secret."""
    head, body, _ = issuer.token().split(".")
    import base64
    import hashlib
    import hmac

    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"one"}').decode().rstrip("=")
    secret = json.dumps(public_jwk("RS256", "one")).encode()
    signature = base64.urlsafe_b64encode(hmac.digest(secret, f"{head}.{body}".encode(), hashlib.sha256))
    with pytest.raises(TokenRefused):
        identity(issuer.tokens(), f"{head}.{body}.{signature.decode().rstrip('=')}")
    issuer.publish({"kty": "oct", "k": "c2VjcmV0", "kid": "one"})
    with pytest.raises(TokenRefused):
        identity(issuer.tokens(), f"{head}.{body}.{signature.decode().rstrip('=')}")


# --- the keys -----------------------------------------------------------------------------------


def test_a_key_that_the_issuer_publishes_later_is_found(issuer: Issuer) -> None:
    tokens = issuer.tokens()
    assert identity(tokens, issuer.token()).name == "alice"
    issuer.publish(public_jwk("ES256", "two"))
    issuer.clock.advance(BACKOFF_MS)
    assert identity(tokens, issuer.token("ES256", "two")).name == "alice"
    with pytest.raises(TokenRefused):
        identity(tokens, issuer.token())


def test_an_unknown_key_id_does_not_reload_the_keys_each_time(issuer: Issuer) -> None:
    tokens = issuer.tokens()
    assert identity(tokens, issuer.token()).name == "alice"
    assert tokens.make_wait_for_key(issuer.token(key_id="two")) is None
    issuer.clock.advance(BACKOFF_MS)
    assert tokens.make_wait_for_key(issuer.token(key_id="two")) is not None


def test_old_keys_are_reloaded_while_tokens_are_checked_with_them(issuer: Issuer) -> None:
    tokens = issuer.tokens()
    assert identity(tokens, issuer.token()).name == "alice"
    issuer.publish(public_jwk("RS256", "one", "new"))
    issuer.clock.advance(REFRESH_MS)
    issuer.clock.holds_aside = True
    token, renewed = issuer.token(), issuer.token(name="new")
    assert tokens.make_wait_for_key(token) is None and tokens.get_identity_of_token(token).name == "alice"
    issuer.clock.do_aside()
    assert tokens.get_identity_of_token(renewed).name == "alice"


def test_clients_that_connect_while_keys_are_loaded_share_one_load(issuer: Issuer) -> None:
    tokens, called = issuer.tokens(), []
    issuer.clock.holds_aside = True
    for number in range(3):
        wait = tokens.make_wait_for_key(issuer.token())
        assert wait is not None
        wait(lambda number=number: called.append(number))
    assert (called, issuer.clock.do_aside(), called) == ([0, 1, 2], 1, [0, 1, 2])


@pytest.mark.parametrize("content", ["", "x", "[]", "{}", '{"keys": 1}', "[" * 100_000, "x" * (BYTES_MAX + 1), None])
def test_keys_that_cannot_be_loaded_are_logged_and_loaded_later(
    issuer: Issuer, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    if content is None:
        issuer.file.unlink()
    else:
        issuer.file.write_text(content)
    tokens = issuer.tokens()
    with pytest.raises(TokenRefused):
        identity(tokens, issuer.token())
    assert content == '{"keys": 1}' or "the token issuer's keys at file://" in caplog.text
    issuer.publish(public_jwk("RS256", "one"))
    issuer.clock.advance(BACKOFF_MAX_MS)
    assert identity(tokens, issuer.token()).name == "alice"


def test_unusable_keys_are_skipped(issuer: Issuer) -> None:
    encrypts = {**public_jwk("RS256", "one", "another"), "use": "enc"}
    issuer.publish(1, {}, {"kty": "RSA"}, {"kty": "new"}, {"kty": "EC", "crv": 1}, encrypts, public_jwk("RS256", "one"))
    assert identity(issuer.tokens(), issuer.token()).name == "alice"


@pytest.fixture
def keys_by_http(issuer: Issuer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.file.read_bytes())

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()
        thread.join()


def test_keys_of_the_issuer_are_loaded_over_http(issuer: Issuer, keys_by_http: str) -> None:
    assert identity(issuer.tokens(url=keys_by_http), issuer.token()).name == "alice"


@for_each("url", [None, "", "x", "ftp://host/x", "http://", "file:", "http://[/"])
def test_an_invalid_key_url_is_rejected(url: str | None) -> None:
    assert find_url_objection(url) is not None


@pytest.mark.parametrize("url", ["file:///etc/keys.json", "http://host/x", "https://host:1/x"])
def test_a_key_url_may_be_a_file_or_http_url(url: str) -> None:
    assert find_url_objection(url) is None
