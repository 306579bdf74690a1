"""What others than the authenticator decide about logins: refusals, delays, the ends of sessions, mechanisms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.broker.security.logins import Login, LoginJudge, Verdict
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Harness
from tests.broker.security.sasl import ALICE, ANYTHING, DELAY_MS, asks, principal, sasl_client, sasl_harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with sasl_harness(tmp_path) as made:
        yield made


class Same(LoginJudge):
    """Decides the same of every login, and remembers them."""

    def __init__(self, verdict: Verdict, *, of_mechanisms: bool = False) -> None:
        self.seen: list[tuple[str | None, str, str | None]] = []
        self._verdict = verdict
        self._of_mechanisms = of_mechanisms

    def judge_login(self, login: Login) -> Verdict | None:
        self.seen.append((login.client_id, login.mechanism, login.user))
        return self._verdict if (login.user is None) is self._of_mechanisms else None


@pytest.mark.parametrize("version", [0, 1])
def test_an_interceptor_may_reject_valid_credentials(harness: Harness, version: int) -> None:
    judge = Same(Verdict(is_refused=True))
    client = sasl_client(harness, judge)
    client.handshake(version=version)
    client.send_token(ALICE) if version == 0 else client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
    assert judge.seen == [("test", "PLAIN", None), ("test", "PLAIN", "alice")]
    assert principal(client) == "User:ANONYMOUS" and not client.closed
    harness.clock.advance(DELAY_MS)
    if version == 1:
        answer = client.answer()
        assert (answer.error_code, answer.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed: Invalid username or password",
        )
    assert client.closed and principal(client) == "User:ANONYMOUS"


@pytest.mark.parametrize("version", [0, 1])
def test_an_interceptor_may_delay_a_login(harness: Harness, version: int) -> None:
    client = sasl_client(harness, Same(Verdict(delay_ms=20)), Same(Verdict(delay_ms=30)))
    client.handshake(version=version)
    before = len(client.sent_bytes())
    client.send_token(ALICE) if version == 0 else client.send(SaslAuthenticateRequest(auth_bytes=ALICE))
    harness.clock.advance(49)
    assert principal(client) == "User:ANONYMOUS" and len(client.sent_bytes()) == before
    harness.clock.advance(1)
    client.outlet.run_soon()
    assert principal(client) == "User:alice" and len(client.sent_bytes()) > before


def test_an_interceptor_may_shorten_but_not_extend_a_session(harness: Harness) -> None:
    client = sasl_client(harness, Same(Verdict(session_ms=5000)), Same(Verdict(session_ms=9000)))
    assert client.log_in().session_lifetime_ms == 5000
    harness.clock.advance(4999)
    assert asks(client, ANYTHING)
    harness.clock.advance(1)
    assert not asks(client, ANYTHING)


def test_an_interceptor_may_reject_a_sasl_mechanism_and_hide_the_enabled_ones(harness: Harness) -> None:
    client = sasl_client(harness, Same(Verdict(is_refused=True), of_mechanisms=True))
    client.send(SaslHandshakeRequest(mechanism="PLAIN"))
    harness.clock.advance(DELAY_MS)
    answer = client.answer()
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, [])
    assert client.closed
