"""The paths of the HTTP control for delegation tokens."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import (
    Asked,
    Span,
)
from minibroker.testing.token_verbs import Token


class NewDelegationToken(Asked):
    """A delegation token to create."""

    user: str
    renewers: list[str] = Field(default_factory=list)
    max_lifetime: Span | None = None


class TokenRenewal(Asked):
    """How long a token lasts from now on, by default as long as possible."""

    period: Span | None = None


class TokenClient(Asked):
    """A client that logs in with a token; other libraries than these cannot."""

    library: Literal["java", "franz-go"]
    mechanism: str | None = Field(default=None, description="SCRAM-SHA-512 by default.")


class DelegationToken(BaseModel):
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
    async def list_delegation_tokens() -> list[DelegationToken]:
        """Return the tokens that have not expired."""
        return [_state(token) for token in broker.tokens.list()]

    @routes.post("/delegation-tokens")
    async def create_delegation_token(asked: NewDelegationToken) -> DelegationToken:
        """Create a token."""
        return _state(broker.tokens.create(asked.user, renewers=asked.renewers, max_lifetime=asked.max_lifetime))

    @routes.delete("/delegation-tokens", status_code=204)
    async def expire_delegation_tokens() -> None:
        """Remove all tokens."""
        broker.tokens.expire()

    @routes.delete("/delegation-tokens/{token}", status_code=204, responses=MISSING)
    async def expire_delegation_token(token: str) -> None:
        """Remove a token. Open sessions continue."""
        broker.tokens.expire(found(token))

    @routes.post("/delegation-tokens/{token}/renew", responses=MISSING)
    async def renew_delegation_token(token: str, asked: TokenRenewal | None = None) -> DelegationToken:
        """Let a token expire later, or sooner."""
        return _state(broker.tokens.renew(found(token), (asked or TokenRenewal()).period))

    @routes.post("/delegation-tokens/{token}/client-config", responses=MISSING)
    async def get_client_config_with_token(token: str, asked: TokenClient) -> dict[str, object]:
        """Return what a client needs to log in with a token."""
        config: dict[str, object] = broker.client_config(asked.library, token=found(token), mechanism=asked.mechanism)
        return config


def _state(token: Token) -> DelegationToken:
    return DelegationToken(**token._asdict())
