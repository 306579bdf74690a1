"""Clients of a listener with SASL, on a harness, for tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.authenticator import Authenticator, SaslListener
from minibroker.broker.network.framing import PREFIX
from minibroker.broker.security.logins import LoginJudge
from minibroker.protocol.declare import Message
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.broker.harness import Client, Harness

LISTENER = "listener.name.sasl_plaintext."
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="b";'
PLAIN = {"sasl.enabled.mechanisms": "PLAIN", f"{LISTENER}plain.sasl.jaas.config": USERS}
ALICE = b"\0alice\0alice-secret"
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    f"{LISTENER}oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
}
ANYTHING = MetadataRequest(topics=[])
DELAY_MS = 100  # connection.failed.authentication.delay.ms


@contextmanager
def sasl_harness(directory: Path, **settings: str) -> Iterator[Harness]:
    """A cluster with PLAIN for alice and bob, and further settings, with underscores for dots."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    with Harness(directory, settings={**PLAIN, **more}) as harness:
        yield harness


class SaslClient(Client):
    """A client of a listener SASL_PLAINTEXT."""

    def __init__(self, harness: Harness, client: Client, judges: Sequence[LoginJudge] = ()) -> None:
        self.__dict__.update(client.__dict__)
        self.connection._execute = self._execute
        self.clock = harness.clock
        self.statistics = AuthenticationStatistics()
        listener = SaslListener("SASL_PLAINTEXT", lambda: harness.cluster, harness.clock, self.statistics, judges)
        self.connection.authenticator = Authenticator(listener, self.connection)

    def answer(self) -> Any:
        """The next answer, which must be there."""
        self.outlet.run_soon()
        return next(self.responses())[1]

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        return self.answer()

    def authenticate(self, token: bytes = ALICE, version: int | None = None) -> Any:
        self.send(SaslAuthenticateRequest(auth_bytes=token), version)
        return self.answer()

    def log_in(self, token: bytes = ALICE) -> Any:
        """Authenticate by PLAIN, which must succeed; the last answer."""
        assert self.handshake().error_code == 0
        answer = self.authenticate(token)
        assert answer.error_code == 0, answer
        return answer

    @property
    def counts(self) -> tuple[int, int, int, int, int]:
        """Authentications that succeeded and failed, the same for those on a connection again, and expired sessions."""
        counted = self.statistics
        again = counted.reauthenticated, counted.reauthentication_failed
        return counted.succeeded, counted.failed, *again, counted.expired

    def send_token(self, token: bytes) -> None:
        self.send_bytes(PREFIX.pack(len(token)) + token)


def sasl_client(harness: Harness, *judges: LoginJudge) -> SaslClient:
    """A client that has to authenticate."""
    return SaslClient(harness, harness.client(), judges)


def principal(client: SaslClient) -> str:
    return str(client.connection.principal)


def asks(client: SaslClient, request: Message) -> bool:
    """Whether the client gets an answer, and is not cut off instead."""
    client.send(request)
    return len(list(client.responses())) == 1 and not client.closed
