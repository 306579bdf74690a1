"""PLAIN as the broker speaks it: RFC 4616, and Kafka's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.broker.security.exchanges import AuthenticatedClient, AuthenticationFailed, start_sasl_exchange
from minibroker.broker.security.mechanisms import exchange_plain_password, parse_plain_users
from tests.cases import for_each

USERS = {"alice": "alice-secret", "tom": "pässwörd", "empty": ""}


def answer(token: bytes) -> AuthenticatedClient:
    """The end of the exchange that a client begins with this token."""
    with pytest.raises(StopIteration) as ended:
        start_sasl_exchange(exchange_plain_password(USERS)).send(token)
    end: AuthenticatedClient = ended.value.value
    return end


@pytest.mark.parametrize(
    ("token", "name"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        ("\0tom\0pässwörd".encode(), "tom"),
    ],
)
def test_the_right_password_authenticates_by_plain(token: bytes, name: str) -> None:
    assert answer(token) == AuthenticatedClient(b"", name, None)


@for_each(
    ("token", "message"),
    [
        (b"\0alice\0bob-secret", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secret ", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0the password of nobody", "Authentication failed: Invalid username or password"),
        (b"tom\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (
            b"tom\0alice\0alice-secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_wrong_passwords_are_rejected_with_kafkas_message(token: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        start_sasl_exchange(exchange_plain_password(USERS)).send(token)
    assert str(refused.value) == message


@for_each(
    ("token", "message"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (b"\0\0", "Authentication failed: username not specified"),
    ],
)
def test_tokens_without_a_name_or_a_password_are_rejected(token: bytes, message: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        start_sasl_exchange(exchange_plain_password(USERS)).send(token)
    assert str(refused.value) == message


@given(st.binary(max_size=100))
def test_arbitrary_plain_messages_are_rejected_without_being_quoted(token: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        start_sasl_exchange(exchange_plain_password(USERS)).send(b"\0" + token)
    assert "secret" not in str(refused.value)


def test_login_module_options_define_the_users() -> None:
    options = {"username": "admin", "password": "x", "user_alice": "1", "user_user_bob": "2"}
    assert parse_plain_users(options) == {"alice": "1", "user_bob": "2"}
