"""The paths of the HTTP control for delegation tokens."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from minibroker.quantities import Duration
from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import DelegationToken
from minibroker.testing.verbs.token_verbs import Token, TokenVerbs
from minibroker.web.routes import Routes

PATH = "/delegation-tokens"
Library = Literal["java", "franz-go"]  # others cannot


def add_delegation_routes(broker: Broker, routes: Routes) -> None:
    """Add the paths of delegation tokens."""

    def get_tokens() -> TokenVerbs:
        return broker.tokens

    def find_token(token_id: str) -> Token:
        token = next((token for token in broker.tokens.list() if token.id == token_id), None)
        if token is None:
            raise LookupError(f"there is no delegation token {token_id}")
        return token

    about = "Return the tokens that have not expired."
    get = partial(routes.add_route, "GET", PATH, owner=get_tokens, about=about, answer=list[DelegationToken])
    get(TokenVerbs.list, "list_delegation_tokens", without=("user",))
    routes.add_route(
        "DELETE", PATH, TokenVerbs.expire, "expire_delegation_tokens", owner=get_tokens, without=("token",)
    )
    post = partial(
        routes.add_route, "POST", PATH, owner=get_tokens, answer=DelegationToken, kinds={"renewers": list[str]}
    )
    post(TokenVerbs.create, "create_delegation_token", body="NewDelegationToken")

    @routes.delete(f"{PATH}/{{token}}", errors=MISSING)
    def expire_delegation_token(token: str) -> None:
        """Remove a token. Open sessions continue."""
        broker.tokens.expire(find_token(token))

    @routes.post(f"{PATH}/{{token}}/renew", body="TokenRenewal", answer=DelegationToken, errors=MISSING)
    def renew_delegation_token(token: str, period: Duration | None = None) -> Token:
        """Let a token expire later, or sooner; by default as late as possible."""
        return broker.tokens.renew(find_token(token), period)

    @routes.post(f"{PATH}/{{token}}/client-config", body="TokenClient", errors=MISSING)
    def get_client_config_with_token(token: str, library: Library, mechanism: str | None = None) -> dict[str, Any]:
        """Return what a client needs to log in with a token."""
        config: dict[str, Any] = broker.client_config(library, token=find_token(token), mechanism=mechanism)
        return config
