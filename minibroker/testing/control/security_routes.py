"""The paths of the HTTP control for security: only the answers about passwords, keys and tokens contain them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from minibroker.testing.broker import Broker
from minibroker.testing.control.http_errors import MISSING
from minibroker.testing.control.models import (
    Asked,
    Span,
)

# Those of aiokafka and kafka-python have objects.
Library = Literal["confluent", "librdkafka.properties", "java", "kafkajs", "franz-go"]
Effect = Literal["allow", "deny"]
Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Kind = Literal["good", "expired", "other host", "unknown authority"]


class NewSecurity(Asked):
    """A protocol, and users by their passwords."""

    protocol: Protocol
    users: Mapping[str, str] = Field(default_factory=dict)


class NewUser(Asked):
    """A user to add, or to change. Without a password, one is generated."""

    name: str
    password: str | None = None


class AclRule(Asked):
    """An ACL: an operation such as "read" on a topic, group or transactional id, or, without these, the cluster."""

    user: str = Field(description='"*" for all.')
    operation: str
    topic: str | None = Field(default=None, description='A name, a prefix that ends with "*", or "*" for all.')
    group: str | None = None
    transactional_id: str | None = None
    host: str = "*"


class QuotaEntity(Asked):
    """Whose quotas: a user's, a client id's, those of both, or an address's; "*" is the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class Quotas(QuotaEntity):
    """Quotas, per second."""

    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    controller_mutation_rate: float | None = None
    connection_creation_rate: float | None = None


class ClientOptions(Asked):
    """A client: its library, and the user as whom it connects."""

    library: Library
    user: str | None = None
    mechanism: str | None = Field(default=None, description="SCRAM-SHA-512 by default.")


class CertificateKind(Asked):
    """A certificate of the broker."""

    kind: Kind


class IssuedTokenOptions(Asked):
    """What a token has, by default all that it needs."""

    expires_in: Span | None = None
    audience: str | None = None
    issuer: str | None = None
    scope: str | None = None
    trusted: bool | None = Field(default=None, description="false: signed by an unknown key.")
    claims: Mapping[str, Any] | None = None

    @property
    def options(self) -> Any:
        """Return those that are given."""
        return {name: value for name, value in self if name != "user" and value is not None}


class UserTokenOptions(IssuedTokenOptions):
    """A token of a user."""

    user: str


class UserName(Asked):
    """A user."""

    user: str


class Rotation(Asked):
    """Whether old keys stay valid."""

    keep_old: bool = False


class IssuedToken(BaseModel):
    """A token of the issuer."""

    token: str


class Assertion(BaseModel):
    """An assertion of a user, signed."""

    assertion: str


class ClientKey(BaseModel):
    """A private key (PEM)."""

    key: str


class IssuerState(BaseModel):
    """The addresses of the issuer of tokens."""

    url: str
    token_endpoint: str
    jwks_url: str


class SecurityState(BaseModel):
    """The protocol, the users, the certificate (PEM) of the authority if there is TLS, and the issuer if there is SASL.

    The protocol is null for a broker without security.
    """

    protocol: str | None
    users: list[str] = Field(default_factory=list)
    authority: str | None = None
    issuer: IssuerState | None = None


def security_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths of the protocol, the certificate and the issuer."""

    @routes.get("/security")
    async def get_security() -> SecurityState:
        """Return how clients connect."""
        if not broker.is_secured:
            return SecurityState(protocol=None)
        security = broker.security
        return SecurityState(
            protocol=security.protocol,
            users=sorted(security.passwords),
            authority=None if security.authority is None else security.authority.certificate,
            issuer=None if security.issuer is None else await get_issuer(),
        )

    @routes.post("/security", status_code=204)
    async def secure_broker(asked: NewSecurity) -> None:
        """Start the broker again with this security, and these users beside those that it had; ports and data stay."""
        await broker.asecure(asked.protocol, asked.users)

    @routes.post("/certificate", status_code=204)
    async def use_certificate(asked: CertificateKind) -> None:
        """Present another certificate to new clients."""
        broker.use_certificate(asked.kind)

    @routes.get("/issuer")
    async def get_issuer() -> IssuerState:
        """Return the addresses of the issuer of tokens."""
        found = broker.issuer
        return IssuerState(url=found.url, token_endpoint=found.token_endpoint, jwks_url=found.jwks_url)


def user_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths of users and their clients."""

    @routes.post("/client-config")
    async def get_client_config(asked: ClientOptions) -> dict[str, Any] | str:
        """Return what a client needs to connect, with its password or key; add the user if it does not exist."""
        config: dict[str, Any] | str = broker.client_config(asked.library, user=asked.user, mechanism=asked.mechanism)
        return config

    @routes.post("/users", status_code=204)
    async def add_user(asked: NewUser) -> None:
        """Add a user, or change its password."""
        _ = broker.security
        broker.users.add(asked.name, asked.password)

    @routes.delete("/users/{user}", status_code=204, responses=MISSING)
    async def remove_user(user: str) -> None:
        """Remove a user; open connections stay."""
        if user not in broker.security.passwords:
            raise LookupError(f"there is no user {user}")
        broker.users.remove(user)


def rights_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths of ACLs and quotas."""

    @routes.post("/acls/{effect}", status_code=204)
    async def add_acl(effect: Effect, asked: AclRule) -> None:
        """Allow or deny an operation. A denial takes precedence."""
        add = broker.acls.allow if effect == "allow" else broker.acls.deny
        add(**dict(asked))

    @routes.delete("/acls", status_code=204)
    async def clear_acls() -> None:
        """Remove all ACLs."""
        broker.acls.clear()

    @routes.post("/quotas", status_code=204)
    async def set_quotas(asked: Quotas) -> None:
        """Set quotas."""
        broker.quotas.set(**dict(asked))

    @routes.post("/quotas/remove", status_code=204)
    async def remove_quotas(asked: QuotaEntity) -> None:
        """Remove the quotas of a user, a client id, both, or an address."""
        broker.quotas.remove(**dict(asked))


def token_routes(broker: Broker, routes: APIRouter) -> None:
    """Add the paths of the issuer's tokens and keys."""

    @routes.post("/issuer/token")
    async def issue_token(asked: UserTokenOptions) -> IssuedToken:
        """Return a token of a user, who need not exist."""
        return IssuedToken(token=broker.issuer.token(asked.user, **asked.options))

    @routes.post("/issuer/use-tokens", status_code=204)
    async def use_tokens(asked: IssuedTokenOptions | None = None) -> None:
        """Let clients get such tokens from now on, until a reset; by default good ones."""
        broker.issuer.use_tokens(**(asked or IssuedTokenOptions()).options)

    @routes.post("/issuer/rotate-keys", status_code=204)
    async def rotate_issuer_keys(asked: Rotation | None = None) -> None:
        """Sign with a new key from now on."""
        broker.issuer.rotate_keys(keep_old=(asked or Rotation()).keep_old)

    @routes.post("/issuer/assertion")
    async def make_assertion(asked: UserName) -> Assertion:
        """Return an assertion that a user has signed, as the token endpoint takes it."""
        return Assertion(assertion=broker.issuer.assertion(asked.user))

    @routes.post("/issuer/client-key")
    async def get_client_key(asked: UserName) -> ClientKey:
        """Return the private key (PEM) with which a user signs assertions."""
        return ClientKey(key=broker.issuer.client_key(asked.user))
