"""Signed tokens, by the rules of Kafka's BrokerJwtValidator.

A token has to be signed by a key of the issuer's, and to have `exp`, `iat` and a subject. Its audience has to be an
expected one: without any, it may have none. Only keys with a public part are used, each by its own kind of algorithm.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from minibroker.broker.security.exchanges import Wait
from minibroker.broker.security.jwks import KeySet, RunDetached
from minibroker.broker.security.oauthbearer import Identity, TokenRefused, name_in, sections, time_ms

if TYPE_CHECKING:
    from jwt import PyJWK

ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
TRIED_KEYS_MAX: Final = 5  # by a token that names no key
# The rest is checked here, as by Kafka and on the passed-in clock.
ONLY_THE_SIGNATURE: Final[Any] = {
    f"verify_{claim}": claim == "signature" for claim in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


class Expected(NamedTuple):
    """What a token has to have."""

    audience: Collection[str]
    issuer: str | None
    skew_ms: int
    subject_claim: str
    scope_claim: str


class Source(Protocol):
    """What is needed to check tokens and to read keys."""

    def now_ms(self) -> int:
        """Return ms since 1970."""

    def monotonic_ms(self) -> float:
        """Return ms that never go back."""

    @property
    def run_detached(self) -> RunDetached:
        """What runs work that waits for another machine in a thread of its own."""


class SignedTokens:
    """Takes tokens that were signed by a key of a set, and have what is expected."""

    def __init__(self, expected: Expected, keys: KeySet, source: Source) -> None:
        self._expected = expected
        self._keys = keys
        self._source = source

    def wait_for(self, token: str) -> Wait | None:
        """Return what gets the key that has signed a token, if it is not there and may be by now."""
        now_ms = self._source.monotonic_ms()
        try:
            key_id = _key_id(sections(token)[0])
        except TokenRefused:
            return None
        if self._keys.is_old(now_ms):
            self._keys.read(self._source.run_detached, now_ms, lambda: None)
        if not self._keys.should_look_for(key_id, now_ms):
            return None
        return lambda then: self._keys.read(self._source.run_detached, now_ms, then)

    def identity(self, token: str) -> Identity:
        """Return whose token it is. Raise TokenRefused."""
        header, claims, _ = sections(token)
        fitting = [key for key in self._keys.keys(_key_id(header)) if header.get("alg") in _algorithms(key)]
        if not any(_has_signed(key, token) for key in fitting[:TRIED_KEYS_MAX]):
            raise TokenRefused("no key of the issuer has signed it")
        expires_ms = self._check_times(claims)
        self._check_issuer(claims)
        _check_scope(claims.get(self._expected.scope_claim))
        return Identity(name_in(claims, self._expected.subject_claim).strip(), expires_ms)

    def _check_times(self, claims: dict[str, Any]) -> int:
        """Return when a token expires. Raise TokenRefused if it has, or is not valid yet."""
        now_ms, skew_ms = self._source.now_ms(), self._expected.skew_ms
        expires_ms, issued_ms, begins_ms = (time_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_ms is None or issued_ms is None:
            raise TokenRefused("it lacks exp or iat")
        if now_ms - skew_ms >= expires_ms:
            raise TokenRefused("it has expired")
        if begins_ms is not None and now_ms + skew_ms < begins_ms:
            raise TokenRefused("it is not valid yet")
        if expires_ms < max(issued_ms, begins_ms or issued_ms):
            raise TokenRefused("it expires before it begins")
        return expires_ms

    def _check_issuer(self, claims: dict[str, Any]) -> None:
        if self._expected.issuer is not None and claims.get("iss") != self._expected.issuer:
            raise TokenRefused("it is of another issuer")
        audience = claims.get("aud", [])
        given = [audience] if isinstance(audience, str) else audience
        if not isinstance(given, list):
            raise TokenRefused("its audience is none")
        if (given or self._expected.audience) and not any(each in self._expected.audience for each in given):
            raise TokenRefused("it is for another audience")


def _key_id(header: dict[str, Any]) -> str | None:
    """Return which key the header of a token says has signed it. Raise TokenRefused."""
    key_id = header.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("its key has no name")
    return key_id


def _algorithms(key: PyJWK) -> tuple[str, ...]:
    return ALGORITHMS[key.key_type or ""]


def _has_signed(key: PyJWK, token: str) -> bool:
    import jwt  # as the keys are there, it has been imported

    try:
        jwt.decode(token, key.key, algorithms=list(_algorithms(key)), options=ONLY_THE_SIGNATURE)
    except jwt.PyJWTError:
        return False
    return True


def _check_scope(scope: Any) -> None:
    """Raise TokenRefused for a scope with empty or repeated words; none is needed."""
    words = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    texts = [word.strip() for word in words if isinstance(word, str)]
    if len(texts) < len(words) or not all(texts) or len(set(texts)) < len(texts):
        raise TokenRefused("its scope has empty or repeated words")
