"""The delegation tokens of a test broker, and the settings of clients that log in with one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from minibroker.broker.control import token_changes
from minibroker.broker.security.delegation import encode_token_secret, is_token_expired, parse_principal
from minibroker.broker.security.principals import USER, Principal
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from minibroker.quantities import Duration, parse_milliseconds
from minibroker.testing.embedded.client_configs import LIBRARIES, ClientAccess
from minibroker.testing.loops import immediate
from minibroker.testing.verbs.security_verbs import VerbsOnBroker

if TYPE_CHECKING:
    from minibroker.testing.embedded.embedded_broker import EmbeddedBroker

AS_LONG_AS_POSSIBLE: Final = -1


class Token(NamedTuple):
    """A delegation token. A client logs in by SCRAM with `id` and `secret`; times are in ms since 1970."""

    id: str
    secret: str
    user: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def __repr__(self) -> str:
        return f"Token(id={self.id!r}, user={self.user!r}, expires_ms={self.expires_ms})"  # no secret


Tokens = list[Token]  # also a verb below


class TokenVerbs(VerbsOnBroker):
    """The delegation tokens, on the broker's clock. They go with a reset."""

    @immediate
    def create(self, user: str, *, renewers: Iterable[str] = (), max_lifetime: Duration | None = None) -> Token:
        """Create a token of a user, which `renewers` may renew, too.

        It expires after `delegation.token.expiry.time.ms` unless it is renewed, and after `max_lifetime` in any case;
        that is at most `delegation.token.max.lifetime.ms`. Raises ValueError for a lifetime below 1 ms.
        """
        lifetime_ms = AS_LONG_AS_POSSIBLE if max_lifetime is None else _parse_positive_ms("max_lifetime", max_lifetime)
        owner, others = Principal(USER, user), [Principal(USER, name) for name in renewers]
        return self._make_token(token_changes.issue_token(self._cluster, owner, owner, others, lifetime_ms))

    @immediate
    def renew(self, token: Token, period: Duration | None = None) -> Token:
        """Let a token expire after `period` from now, or as late as possible; return it with its new expiry.

        Raises ValueError for a period below 1 ms, and KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED.
        """
        period_ms = AS_LONG_AS_POSSIBLE if period is None else _parse_positive_ms("period", period)
        secret = self._cluster.image.tokens.compute_token_secret(token.id)
        expires_ms = token_changes.renew_token(self._cluster, secret, Principal(USER, token.user), period_ms)
        return token._replace(expires_ms=expires_ms)

    @immediate
    def expire(self, token: Token | None = None) -> None:
        """Remove a token, or all: nobody logs in with it any more. Open sessions go on until it would have expired.

        Raises KafkaError(DELEGATION_TOKEN_NOT_FOUND).
        """
        known = self._cluster.image.tokens.by_id
        if token is not None and token.id not in known:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        gone = list(known) if token is None else [token.id]
        self._cluster.commit_metadata_records([RemoveDelegationTokenRecord(token_id=token_id) for token_id in gone])

    @immediate
    def list(self, user: str | None = None) -> Tokens:
        """Return the tokens that have not expired, of one user or all."""
        now_ms, records = self._cluster.clock.wall_ms(), self._cluster.image.tokens.by_id.values()
        tokens = [self._make_token(record) for record in records if not is_token_expired(record, now_ms)]
        return [token for token in tokens if user in (None, token.user)]

    def _make_token(self, record: DelegationTokenRecord) -> Token:
        return Token(
            record.token_id,
            encode_token_secret(self._cluster.image.tokens.compute_token_secret(record.token_id)),
            parse_principal(record.owner).name,
            tuple(parse_principal(renewer).name for renewer in record.renewers),
            record.issue_timestamp,
            record.expiration_timestamp,
            record.max_timestamp,
        )


def _parse_positive_ms(name: str, duration: Duration) -> int:
    """Return a duration in ms. Raises ValueError if it is below 1 ms, which for Kafka means something else."""
    duration_ms = int(parse_milliseconds(duration))
    if duration_ms < 1:
        raise ValueError(f"{name} is 1 ms or more, and cannot be {duration!r}")
    return duration_ms


def _add_tokenauth_to_java_config(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "sasl.jaas.config": config["sasl.jaas.config"].removesuffix(";") + ' tokenauth="true";'}


def _add_is_token_to_franz_go_config(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "sasl": {**config["sasl"], "is_token": True}}


# The others do not send tokenauth=true, without which a broker looks for a user of this name.
WITH_TOKENS: Final[Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "java": _add_tokenauth_to_java_config,
    "franz-go": _add_is_token_to_franz_go_config,
}


def make_config_with_token(broker: EmbeddedBroker, library: str, token: Token, mechanism: str | None) -> dict[str, Any]:
    """Return the settings of a library's client that logs in with a token. Raises ValueError."""
    security = broker.security
    if not security.protocol.startswith("SASL"):
        raise ValueError(f"with {security.protocol} nobody logs in with a token")
    from minibroker.broker.security.scram import BY_NAME

    mechanism = mechanism or "SCRAM-SHA-512"
    if mechanism not in BY_NAME:
        raise ValueError(f"a client logs in with a token by {' or '.join(BY_NAME)}, and not by {mechanism!r}")
    if library not in WITH_TOKENS:
        can = " and ".join(WITH_TOKENS)
        raise ValueError(f"only {can} log in with delegation tokens; {library!r} does not (no tokenauth in its SCRAM)")
    authority = None if security.authority is None else security.authority.certificate
    access = ClientAccess(
        broker.bootstrap_servers, security.protocol, authority, None, mechanism, token.id, token.secret
    )
    return WITH_TOKENS[library](LIBRARIES[library](access))
