"""The paths of the HTTP control for security: only the answers about passwords, keys and tokens contain them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from minibroker.quantities import Duration
from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import NOTHING, DelegationToken, RequestBody, Shown
from minibroker.testing.embedded.issuer import Issuer
from minibroker.testing.verbs.security_verbs import AclVerbs, QuotaVerbs, Users
from minibroker.testing.verbs.token_verbs import Token, TokenVerbs
from minibroker.web.routes import Routes

TOKENS_PATH = "/delegation-tokens"
TokenLibrary = Literal["java", "franz-go"]  # others cannot
# Those of aiokafka and kafka-python have objects.
Library = Literal["confluent", "librdkafka.properties", "java", "kafkajs", "franz-go"]
Effect = Literal["allow", "deny"]
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Kind = Literal["good", "expired", "other host", "unknown authority"]


def add_delegation_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of delegation tokens."""

    def get_tokens() -> TokenVerbs:
        return broker.tokens

    def find_token(token_id: str) -> Token:
        token = next((token for token in broker.tokens.list() if token.id == token_id), None)
        if token is None:
            raise LookupError(f"there is no delegation token {token_id}")
        return token

    about = "Return the tokens that have not expired."
    get = partial(routes.add_route, "GET", TOKENS_PATH, owner=get_tokens, about=about, answer=list[DelegationToken])
    get(TokenVerbs.list, "list_delegation_tokens", without=("user",))
    routes.add_route(
        "DELETE", TOKENS_PATH, TokenVerbs.expire, "expire_delegation_tokens", owner=get_tokens, without=("token",)
    )
    post = partial(
        routes.add_route, "POST", TOKENS_PATH, owner=get_tokens, answer=DelegationToken, kinds={"renewers": list[str]}
    )
    post(TokenVerbs.create, "create_delegation_token", body="NewDelegationToken")

    @routes.delete(f"{TOKENS_PATH}/{{token}}", errors=MISSING)
    def expire_delegation_token(token: str) -> None:
        """Remove a token. Open sessions continue."""
        broker.tokens.expire(find_token(token))

    @routes.post(f"{TOKENS_PATH}/{{token}}/renew", body="TokenRenewal", answer=DelegationToken, errors=MISSING)
    def renew_delegation_token(token: str, period: Duration | None = None) -> Token:
        """Let a token expire later, or sooner; by default as late as possible."""
        return broker.tokens.renew(find_token(token), period)

    @routes.post(f"{TOKENS_PATH}/{{token}}/client-config", body="TokenClient", errors=MISSING)
    def get_client_config_with_token(token: str, library: TokenLibrary, mechanism: str | None = None) -> dict[str, Any]:
        """Return what a client needs to log in with a token."""
        config: dict[str, Any] = broker.client_config(library, token=find_token(token), mechanism=mechanism)
        return config


class AclRule(RequestBody):
    """An ACL: an operation such as "read" on a topic, group or transactional id, or, without these, the cluster."""

    user: Annotated[str, Meta(description='"*" for all.')]
    operation: str
    topic: Annotated[str | None, Meta(description='A name, a prefix that ends with "*", or "*" for all.')] = None
    group: str | None = None
    transactional_id: str | None = None
    host: str = "*"


class IssuerState(Shown):
    """The addresses of the issuer of tokens."""

    url: str
    token_endpoint: str
    jwks_url: str


class SecurityState(Struct):
    """The protocol, the users, the certificate (PEM) of the authority if there is TLS, and the issuer if there is SASL.

    The protocol is null for a broker without security.
    """

    protocol: str | None
    users: list[str] = []
    authority: str | None = None
    issuer: IssuerState | None = None


def add_security_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of the protocol, the certificate and the issuer."""

    @routes.get("/security")
    def get_security() -> SecurityState:
        """Return how clients connect."""
        if not broker.is_secured:
            return SecurityState(None)
        security = broker.security
        authority = None if security.authority is None else security.authority.certificate
        issuer = None if security.issuer is None else IssuerState.make_from(security.issuer)
        return SecurityState(security.protocol, sorted(security.passwords), authority, issuer)

    @routes.post("/security", body="NewSecurity")
    async def secure_broker(protocol: Protocol, users: Mapping[str, str] = NOTHING) -> None:
        """Start the broker again with this security, and these users beside those that it had; ports and data stay."""
        await broker.asecure(protocol, users)

    @routes.get("/issuer", answer=IssuerState)
    def get_issuer() -> Issuer:
        """Return the addresses of the issuer of tokens."""
        return broker.issuer

    kind = {"kind": Kind}
    routes.add_route(
        "POST", "/certificate", broker.use_certificate, "use_certificate", body="CertificateKind", kinds=kind
    )


def add_user_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of users and their clients."""

    def get_users() -> Users:
        _ = broker.security
        return broker.users

    @routes.delete("/users/{user}", errors=MISSING)
    def remove_user(user: str) -> None:
        """Remove a user; open connections stay."""
        if user not in broker.security.passwords:
            raise LookupError(f"there is no user {user}")
        broker.users.remove(user)

    about = "Add a user, or change its password."
    routes.add_route("POST", "/users", Users.add, "add_user", owner=get_users, body="NewUser", status=204, about=about)

    @routes.post("/client-config", body="ClientOptions")
    def get_client_config(library: Library, user: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """Return what a client needs to connect, as its library takes it: addresses, certificates, name and password.

        A user that does not exist is added. `mechanism` is SCRAM-SHA-512 unless it is given. What is a file's text is
        in `text`.
        """
        config = broker.client_config(library, user=user, mechanism=mechanism)
        return {"text": config} if isinstance(config, str) else config


def add_acl_and_quota_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of ACLs and quotas."""

    def get_acls() -> AclVerbs:
        return broker.acls

    def get_quotas() -> QuotaVerbs:
        return broker.quotas

    @routes.post("/acls/{effect}")
    def add_acl(effect: Effect, asked: AclRule) -> None:
        """Allow or deny an operation. A denial takes precedence."""
        add = broker.acls.allow if effect == "allow" else broker.acls.deny
        add(**structs.asdict(asked))

    routes.add_route("DELETE", "/acls", AclVerbs.clear, "clear_acls", owner=get_acls)
    on = partial(routes.add_route, "POST", owner=get_quotas, is_wanted=True)
    on("/quotas", QuotaVerbs.set, "set_quotas", body="Quotas")
    on("/quotas/remove", QuotaVerbs.remove, "remove_quotas", body="QuotaEntity")


def add_token_routes(broker: Broker, routes: Routes) -> None:
    """Add the routes of the issuer's tokens and keys."""

    def get_issuer() -> Issuer:
        return broker.issuer

    on = partial(routes.add_route, "POST", owner=get_issuer)
    on("/issuer/token", Issuer.token, "issue_token", body="UserTokenOptions", answer="IssuedToken.token")
    on("/issuer/use-tokens", Issuer.use_tokens, "use_tokens", body="IssuedTokenOptions")
    on("/issuer/rotate-keys", Issuer.rotate_keys, "rotate_issuer_keys", body="Rotation")
    on = partial(on, body="UserName", without=("expires_in",))
    on("/issuer/assertion", Issuer.assertion, "make_assertion", answer="Assertion.assertion")
    on("/issuer/client-key", Issuer.client_key, "get_client_key", answer="ClientKey.key")
