"""SASL mechanisms: the exchanges of the RFCs, and brokers that cannot be trusted."""

from __future__ import annotations

import pytest

from minibroker.client import client_mechanisms
from minibroker.client.client_errors import AuthenticationFailed
from minibroker.client.client_mechanisms import (
    MechanismExchange,
    authenticate_by_oauthbearer,
    authenticate_by_plain,
    authenticate_by_scram,
)
from tests.cases import for_each

# RFC 5802, section 5, and RFC 7677, section 3: hash, nonce, and what client and server say by turns.
RFC_5802 = (
    "sha1",
    "fyko+d2lbbFgONRv9qkxdawL",
    [
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ],
)
RFC_7677 = (
    "sha256",
    "rOprNGfwEbeRWgbNEkqO",
    [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ],
)
NONCE, (_, SERVER_FIRST, CLIENT_FINAL, SERVER_FINAL) = RFC_7677[1], RFC_7677[2]


def says(exchange: MechanismExchange, answer: str | bytes) -> bytes | None:
    """Answer the client, and return what it says then; None if it is content."""
    try:
        return exchange.send(answer if isinstance(answer, bytes) else answer.encode())
    except StopIteration:
        return None


def begun() -> MechanismExchange:
    exchange = authenticate_by_scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    return exchange


@pytest.mark.parametrize(("hash_name", "nonce", "words"), [RFC_5802, RFC_7677], ids=["RFC 5802", "RFC 7677"])
def test_scram_messages_equal_those_of_the_rfcs(hash_name: str, nonce: str, words: list[str]) -> None:
    exchange = authenticate_by_scram(hash_name, "user", "pencil", nonce)
    assert next(exchange).decode() == words[0]
    assert says(exchange, words[1]) == words[2].encode()
    assert says(exchange, words[3]) is None


def test_a_user_name_is_escaped_and_each_nonce_is_unique() -> None:
    first, second = (next(authenticate_by_scram("sha512", "a=b,c", "secret")).decode() for _ in range(2))
    assert first.startswith("n,,n=a=3Db=2Cc,r=") and first != second


@for_each(
    ("challenge", "message"),
    [
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue ours"),
        ("r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce does not continue ours"),
        (SERVER_FIRST.replace("4096", "4095"), "wants 4095 iterations, not 4096 to 1000000"),
        (SERVER_FIRST.replace("4096", "1000001"), "wants 1000001 iterations"),
        (SERVER_FIRST.replace("4096", "-4096"), "no valid number of iterations"),
        (SERVER_FIRST.replace("4096", "9" * 4000), "no valid number of iterations"),
        (SERVER_FIRST.replace(",i=4096", ""), "no valid number of iterations"),
        (SERVER_FIRST.replace("W22ZaJ0SNY7soEsUEjb6gQ==", "*"), "not in base64"),
        (SERVER_FIRST.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""), "no salt"),
        ("m=more," + SERVER_FIRST, "an unknown extension"),
        ("nonsense", "is malformed"),
        ("", "is malformed"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_an_invalid_challenge_is_rejected(challenge: str | bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message):
        says(begun(), challenge)


@pytest.mark.parametrize(
    ("final", "message"),
    [
        (SERVER_FINAL.replace("6rri", "7rri"), "does not prove that it knows the password"),
        ("v=", "does not prove"),
        ("x=1", "does not prove"),
        ("", "is malformed"),
        ("e=invalid-proof", "'invalid-proof'"),
    ],
)
def test_a_broker_must_prove_that_it_knows_the_password(final: str, message: str) -> None:
    exchange = begun()
    says(exchange, SERVER_FIRST)
    with pytest.raises(AuthenticationFailed, match=message) as failure:
        says(exchange, final)
    assert "pencil" not in str(failure.value)


def test_an_excessive_iteration_count_is_rejected_cheaply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_mechanisms.hashlib, "pbkdf2_hmac", lambda *_: pytest.fail("the iterations were done"))
    with pytest.raises(AuthenticationFailed):
        says(begun(), SERVER_FIRST.replace("4096", "999999999"))


def test_plain_sends_name_and_password() -> None:
    exchange = authenticate_by_plain("alice", "söcret")
    assert next(exchange) == "\0alice\0söcret".encode()
    assert says(exchange, "") is None


def test_a_token_is_sent_with_its_extensions() -> None:
    exchange = authenticate_by_oauthbearer("a.b.", {"traceId": "7"})
    assert next(exchange) == b"n,,\x01auth=Bearer a.b.\x01traceId=7\x01\x01"
    assert says(exchange, "") is None


def test_a_rejected_token_is_not_in_the_error() -> None:
    exchange = authenticate_by_oauthbearer("a.b.", {})
    next(exchange)
    assert says(exchange, '{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="refuses the token"):
        says(exchange, "")
