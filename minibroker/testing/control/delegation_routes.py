"""The paths of the HTTP control for delegation tokens."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import DURATION, Asked, Span
from minibroker.testing.token_verbs import Token


class NewToken(Asked):
    """A delegation token to create."""

    user: str
    renewers: list[str] = Field(default_factory=list)
    max_lifetime: Span | None = Field(default=None, description=DURATION)


class Renewal(Asked):
    """How long a token lasts from now on, by default as long as possible."""

    period: Span | None = Field(default=None, description=DURATION)


class Holder(Asked):
    """A client that logs in with a token; other libraries than these cannot."""

    library: Literal["java", "franz-go"]
    mechanism: str | None = Field(default=None, description="SCRAM-SHA-512 by default.")


class TokenState(BaseModel):
    """A delegation token: a client logs in by SCRAM with its id and its secret. Times are in ms since 1970."""

    id: str
    secret: str
    user: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


def delegation_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths of delegation tokens."""

    def found(token_id: str) -> Token:
        token = next((token for token in broker.tokens.list() if token.id == token_id), None)
        if token is None:
            raise LookupError(f"there is no delegation token {token_id}")
        return token

    @routes.get("/delegation-tokens")
    async def tokens() -> list[TokenState]:
        """Return the tokens that have not expired."""
        return [_state(token) for token in broker.tokens.list()]

    @routes.post("/delegation-tokens")
    async def create(asked: NewToken) -> TokenState:
        """Create a token."""
        return _state(broker.tokens.create(asked.user, renewers=asked.renewers, max_lifetime=asked.max_lifetime))

    @routes.delete("/delegation-tokens", status_code=204)
    async def expire_all() -> None:
        """Remove all tokens."""
        broker.tokens.expire()

    @routes.delete("/delegation-tokens/{token}", status_code=204, responses=MISSING)
    async def expire(token: str) -> None:
        """Remove a token. Open sessions continue."""
        broker.tokens.expire(found(token))

    @routes.post("/delegation-tokens/{token}/renew", responses=MISSING)
    async def renew(token: str, asked: Renewal | None = None) -> TokenState:
        """Let a token expire later, or sooner."""
        return _state(broker.tokens.renew(found(token), (asked or Renewal()).period))

    @routes.post("/delegation-tokens/{token}/client-config", responses=MISSING)
    async def client_config(token: str, asked: Holder) -> dict[str, object]:
        """Return what a client needs to log in with a token."""
        config: dict[str, object] = broker.client_config(asked.library, token=found(token), mechanism=asked.mechanism)
        return config


def _state(token: Token) -> TokenState:
    return TokenState(**token._asdict())
