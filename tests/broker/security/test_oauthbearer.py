"""OAUTHBEARER as the broker speaks it, with tokens that have no signature: RFC 7628, and Kafka's options."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.security.exchanges import (
    AuthenticatedClient,
    AuthenticationFailed,
    Exchange,
    InvalidCredentials,
    start_sasl_exchange,
)
from minibroker.broker.security.oauthbearer import exchange_oauthbearer_token
from minibroker.broker.security.signed_tokens import UnsecuredOptions, UnsecuredTokens
from minibroker.client.client_mechanisms import authenticate_by_oauthbearer as client_oauthbearer
from minibroker.jaas import JaasError
from tests.cases import for_each

NOW_S = 1_700_000_000
GOOD: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
OPTIONS = {
    "unsecuredValidatorPrincipalClaimName": "who",
    "unsecuredValidatorScopeClaimName": "may",
    "unsecuredValidatorRequiredScope": "read write",
    "unsecuredValidatorAllowableClockSkewMs": "3000",
}


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def token(claims: object = GOOD, header: object = {"alg": "none"}, signature: str = "") -> str:  # noqa: B006
    return f"{part(header)}.{part(claims)}.{signature}"


def exchange(**options: str) -> Exchange:
    return start_sasl_exchange(
        exchange_oauthbearer_token(UnsecuredTokens(UnsecuredOptions(options), lambda: NOW_S * 1000))
    )


def let_in(running: Exchange, first: bytes) -> AuthenticatedClient:
    with pytest.raises(StopIteration) as ended:
        running.send(first)
    end: AuthenticatedClient = ended.value.value
    return end


def refusal(running: Exchange, said: str) -> str:
    """What a client is told of its token, first in the exchange, and then as the reason of its failure."""
    told = running.send(next(client_oauthbearer(said, {})))
    assert isinstance(told, bytes)
    with pytest.raises(AuthenticationFailed) as refused:
        running.send(b"\x01")
    assert str(refused.value) == told.decode()
    return told.decode()


@pytest.mark.parametrize(
    "first",
    [
        f"n,,\x01auth=Bearer {token()}\x01\x01",
        f"n,a=alice,\x01auth=bearer   {token()}\x01\x01",
        f"n,,\x01logicalCluster=lkc-1\x01auth=Bearer {token()}\x01identityPoolId=a b\x01\x01",
    ],
)
def test_a_token_authenticates_until_it_expires(first: str) -> None:
    assert let_in(exchange(), first.encode()) == AuthenticatedClient(b"", "alice", (NOW_S + 60) * 1000)


@for_each(
    "first",
    [
        "",
        f"n,,\x01auth=Bearer {token()}\x01",
        f"n,,\x01auth=Bearer {token()}\x01pool={'x' * (32 << 10)}\x01\x01",
        f"y,,\x01auth=Bearer {token()}\x01\x01",
        f"n,,auth=Bearer {token()}\x01\x01",
        "n,,\x01\x01",
        "n,,\x01host=x\x01\x01",
        "n,,\x01auth=Bearer\x01\x01",
        f"n,,\x01auth=Basic {token()}\x01\x01",
        "n,,\x01auth=Bearer ä\x01\x01",
        "n,,\x01auth=Bearer a b\x01\x01",
    ],
)
def test_malformed_first_oauthbearer_messages_are_rejected(first: str) -> None:
    with pytest.raises(InvalidCredentials, match="Invalid OAUTHBEARER client first message"):
        exchange().send(first.encode())


def test_an_authorization_id_that_differs_from_the_user_is_rejected() -> None:
    said = r"Client requested an authorization id \(bob\) that is different from the token's principal name \(alice\)"
    with pytest.raises(AuthenticationFailed, match=said):
        exchange().send(f"n,a=bob,\x01auth=Bearer {token()}\x01\x01".encode())


@for_each(
    "said",
    [
        "x",
        "a.b",
        "a.b.c",
        "...",
        token() + ".x",
        token(signature="c2ln"),
        token(header={"alg": "RS256"}),
        token(header={}),
        token(header=[]),
        token(claims=[]),
        token(claims="x"),
        token({**GOOD, "sub": " "}),
        token({**GOOD, "sub": 7}),
        token({**GOOD, "sub": "\ud800lice"}),
        token({**GOOD, "exp": None}),
        token({**GOOD, "exp": True}),
        token({**GOOD, "exp": "1"}),
        token({**GOOD, "exp": float("inf")}),
        token({**GOOD, "exp": float("nan")}),
        token({**GOOD, "exp": 10**400}),
        token({**GOOD, "exp": NOW_S}),
        token({**GOOD, "exp": NOW_S - 60}),
        token({**GOOD, "iat": NOW_S + 1}),
        part({"alg": "none"}) + "." + base64.urlsafe_b64encode(b"[" * 21_000).decode() + ".",
    ],
)
def test_an_invalid_token_is_rejected_with_kafkas_message(said: str) -> None:
    assert refusal(exchange(), said) == '{"status":"invalid_token"}'


def test_login_module_options_set_the_required_claims() -> None:
    claims = {"who": "bob", "may": ["write", "read", "x"], "exp": NOW_S - 2}
    first = next(client_oauthbearer(token(claims), {}))
    assert let_in(exchange(**OPTIONS), first).name == "bob"
    told = '{"status":"insufficient_scope", "scope":"[read, write]"}'
    assert refusal(exchange(**OPTIONS), token({**claims, "may": "read write"})) == told
    assert refusal(exchange(**OPTIONS), token({**claims, "may": ["read"]})) == told
    assert refusal(exchange(**OPTIONS), token({**claims, "exp": NOW_S - 3})) == '{"status":"invalid_token"}'


@pytest.mark.parametrize("skew", ["-1", "x", "1.5", "9" * 10])
def test_an_invalid_clock_skew_is_rejected_at_startup(skew: str) -> None:
    with pytest.raises(JaasError):
        UnsecuredOptions({"unsecuredValidatorAllowableClockSkewMs": skew})


def test_a_client_that_continues_after_a_rejected_token_is_disconnected() -> None:
    running = exchange()
    running.send(next(client_oauthbearer("x", {})))
    with pytest.raises(InvalidCredentials):
        running.send(f"n,,\x01auth=Bearer {token()}\x01\x01".encode())


MESSAGES = st.one_of(
    st.binary(max_size=60),
    st.text(alphabet="n,a=\x01uthBer .x-e\n", max_size=60).map(str.encode),
    st.binary(max_size=40).map(lambda raw: b"n,,\x01auth=Bearer " + base64.urlsafe_b64encode(raw) + b"..\x01\x01"),
)


@given(MESSAGES)
def test_arbitrary_oauthbearer_messages_are_rejected(first: bytes) -> None:
    running = exchange()
    with pytest.raises((InvalidCredentials, AuthenticationFailed)):
        running.send(first)
        running.send(b"\x01")
