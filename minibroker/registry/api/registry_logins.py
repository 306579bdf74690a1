"""Who may use a registry: the users of the broker's first listener, if its clients must log in.

Authorization: Basic NAME:PASSWORD in base64    by PLAIN's users, or else by SCRAM's
Authorization: Bearer TOKEN                     by OAUTHBEARER
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from minibroker.broker.configs.listeners import Listener, make_broker_listeners
from minibroker.broker.network.authenticator import SaslListener
from minibroker.broker.security.exchanges import AuthenticatedClient, AuthenticationFailed, InvalidCredentials
from minibroker.broker.security.scram import MAX_ITERATIONS, ScramMechanism, salt_password
from minibroker.registry.api.http_messages import Request
from minibroker.registry.state.registry_errors import RegistryError

if TYPE_CHECKING:
    from minibroker.broker.assembly import Broker
    from minibroker.broker.configs.settings import Settings
    from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord

CREDENTIALS_MAX: Final = 1000  # that are known to be right, so that they need not be hashed again
WAIT_SECONDS: Final = 10.0  # for the keys of an issuer
_KEY: Final = os.urandom(32)  # of this process, so that no password is kept


class BrokerUsersGuard:
    """Lets in who could log in at the broker's first listener."""

    def __init__(self, cluster: Callable[[], Broker]) -> None:
        self._cluster = cluster
        self._proven: dict[bytes, UserScramCredentialRecord] = {}
        self._first: tuple[Settings, Listener] | None = None

    async def authenticate(self, request: Request) -> str | None:
        """Return the name of the user, None if nobody need log in. Raises RegistryError."""
        cluster = self._cluster()
        settings = cluster.static_settings
        if self._first is None or self._first[0] is not settings:  # to parse them takes a tenth of a request's time
            self._first = settings, make_broker_listeners(settings)[0]
        listener = self._first[1]
        if not listener.requires_sasl:
            return None
        sasl = SaslListener(listener.name, self._cluster, cluster.clock)
        scheme, _, credential = request.headers.get("authorization", "").partition(" ")
        try:
            if scheme.lower() == "basic":
                return await self._authenticate_by_password(sasl, credential.strip())
            if scheme.lower() == "bearer":
                return await _authenticate_by_token(sasl, credential.strip())
        except (InvalidCredentials, AuthenticationFailed, UnicodeError):
            pass
        raise RegistryError(401, "Unauthorized")

    async def _authenticate_by_password(self, sasl: SaslListener, credential: str) -> str:
        """Return the user of HTTP Basic's credential. Raises InvalidCredentials."""
        try:
            name, colon, password = base64.b64decode(credential, validate=True).decode().partition(":")
        except ValueError:
            raise InvalidCredentials("the credential is not text in base64") from None
        if not colon:
            raise InvalidCredentials("the credential has no password")
        if "PLAIN" in sasl.mechanisms:
            return await _run_exchange(sasl, "PLAIN", f"\0{name}\0{password}".encode())
        for mechanism in ScramMechanism:
            known = sasl.find_credential(name, mechanism) if mechanism.text in sasl.mechanisms else None
            if known is not None and await self._is_password_of_user(mechanism, known, password):
                return name
        raise InvalidCredentials("the name or the password is wrong")

    async def _is_password_of_user(
        self, mechanism: ScramMechanism, credential: UserScramCredentialRecord, password: str
    ) -> bool:
        proof = hmac.digest(_KEY, f"{mechanism} {credential.name} {password}".encode(), "sha256")
        if self._proven.get(proof) == credential:
            return True
        if credential.iterations > MAX_ITERATIONS:
            return False
        salted = await asyncio.to_thread(salt_password, mechanism, password, credential.salt, credential.iterations)
        client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
        if not hmac.compare_digest(hashlib.new(mechanism.hash_name, client_key).digest(), credential.stored_key):
            return False
        if len(self._proven) >= CREDENTIALS_MAX:
            self._proven.clear()
        self._proven[proof] = credential
        return True


async def _authenticate_by_token(sasl: SaslListener, token: str) -> str:
    """Return the user of a bearer token. Raises InvalidCredentials."""
    if "OAUTHBEARER" not in sasl.mechanisms:
        raise InvalidCredentials("the listener takes no tokens")
    return await _run_exchange(sasl, "OAUTHBEARER", f"n,,\x01auth=Bearer {token}\x01\x01".encode("ascii"))


async def _run_exchange(sasl: SaslListener, mechanism: str, message: bytes) -> str:
    """Return the user whom a SASL exchange with one message of the client logs in. Raises InvalidCredentials."""
    exchange = sasl.mechanisms[mechanism].begin(sasl)
    while True:
        try:
            challenge = exchange.send(message)
        except StopIteration as end:
            authenticated: AuthenticatedClient = end.value
            return authenticated.name
        if isinstance(challenge, bytes):
            raise InvalidCredentials("the token is refused")
        read: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        challenge(lambda read=read: None if read.done() else read.set_result(None))  # type: ignore[misc]
        try:
            await asyncio.wait_for(read, WAIT_SECONDS)
        except TimeoutError:
            raise InvalidCredentials("the keys of the issuer cannot be read") from None
