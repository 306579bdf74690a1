"""The validation of tokens: signed ones by the rules of Kafka's BrokerJwtValidator, and those without a signature.

A signed token must be signed by a key of the issuer, and have `exp`, `iat` and a subject. Its audience must be an
expected one; if none is expected, it must have none. Only asymmetric keys are used, each for its own algorithms.

Tokens without a signature are Kafka's default, and only for development: any client can make them. Their options are
Kafka's: `unsecuredValidatorPrincipalClaimName`, `...ScopeClaimName`, `...RequiredScope` (words separated by spaces)
and `...AllowableClockSkewMs`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from minibroker.broker.security.exchanges import WaitForResult
from minibroker.broker.security.jwks import KeySet, RunInOwnThread
from minibroker.broker.security.oauthbearer import (
    TokenIdentity,
    TokenRefused,
    decode_token_parts,
    get_name_claim,
    get_time_claim_ms,
)
from minibroker.jaas import JaasError

if TYPE_CHECKING:
    from jwt import PyJWK


PREFIX: Final = "unsecuredValidator"
SKEW_DIGITS_MAX: Final = 9
ALGORITHMS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
TRIED_KEYS_MAX: Final = 5  # for a token without a key id
# This file checks the rest, by Kafka's rules and on the passed-in clock.
ONLY_THE_SIGNATURE: Final[Any] = {
    f"verify_{claim}": claim == "signature" for claim in ("signature", "exp", "nbf", "iat", "aud", "iss", "sub", "jti")
}


class UnsecuredOptions:
    """The options of a login module. Raises JaasError."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.principal_claim = options.get(f"{PREFIX}PrincipalClaimName", "").strip() or "sub"
        self.scope_claim = options.get(f"{PREFIX}ScopeClaimName", "").strip() or "scope"
        self.required_scope = options.get(f"{PREFIX}RequiredScope", "").split()
        skew = options.get(f"{PREFIX}AllowableClockSkewMs", "").strip() or "0"
        if not (skew.isascii() and skew.isdigit() and len(skew) <= SKEW_DIGITS_MAX):
            raise JaasError(f"{PREFIX}AllowableClockSkewMs must be a number of milliseconds that is not negative")
        self.skew_ms = int(skew)


class UnsecuredTokens:
    """A validator that accepts any token of the algorithm "none" that has not expired."""

    def __init__(self, options: UnsecuredOptions, now_ms: Callable[[], int]) -> None:
        self._options = options
        self._now_ms = now_ms

    def make_wait_for_key(self, token: str) -> WaitForResult | None:
        """Return None: there is no key."""
        return None

    def get_identity_of_token(self, token: str) -> TokenIdentity:
        """Return the identity of a valid token. Raises TokenRefused."""
        header, claims, signature = decode_token_parts(token)
        if header.get("alg") != "none" or signature:
            raise TokenRefused("an unsecured token has the algorithm none, and no signature")
        options = self._options
        name = get_name_claim(claims, options.principal_claim)
        issued_ms, expires_ms, now_ms = (
            get_time_claim_ms(claims, "iat"),
            get_time_claim_ms(claims, "exp"),
            self._now_ms(),
        )
        if expires_ms is None:
            raise TokenRefused("it has no exp")
        if expires_ms <= now_ms - options.skew_ms:
            raise TokenRefused("it has expired")
        if issued_ms is not None and issued_ms > now_ms + options.skew_ms:
            raise TokenRefused("it was issued in the future")
        if issued_ms is not None and expires_ms <= issued_ms:
            raise TokenRefused("it expires before it was issued")
        missing = [each for each in options.required_scope if each not in _get_scope_claim(claims, options.scope_claim)]
        if missing:
            raise TokenRefused(f"it lacks the scope {missing[0]}", f"[{', '.join(options.required_scope)}]")
        return TokenIdentity(name, expires_ms)


def _get_scope_claim(claims: dict[str, Any], claim_name: str) -> list[str]:
    """Return the words of the scope claim; a claim that is a text counts as one, as in Kafka."""
    value = claims.get(claim_name)
    if isinstance(value, str):
        return [value.strip()]
    return [each.strip() for each in value if isinstance(each, str)] if isinstance(value, list) else []


class ExpectedClaims(NamedTuple):
    """What a token must have. Without an audience or an issuer it may have any, or none."""

    audience: Collection[str]
    issuer: str | None
    skew_ms: int
    subject_claim: str
    scope_claim: str


class ClockAndThreads(Protocol):
    """The clock and the threads for checking tokens and reading keys."""

    def now_ms(self) -> int:
        """Return ms since 1970."""

    def monotonic_ms(self) -> float:
        """Return the time of a monotonic clock in ms."""

    @property
    def run_in_own_thread(self) -> RunInOwnThread:
        """A function that runs work that waits for another machine, in a separate thread."""


class SignedTokens:
    """A validator for tokens that are signed by a key of a set."""

    def __init__(self, expected: ExpectedClaims, keys: KeySet, source: ClockAndThreads) -> None:
        self._expected = expected
        self._keys = keys
        self._source = source

    def make_wait_for_key(self, token: str) -> WaitForResult | None:
        """Return the wait until the key that signed a token is read, or None if it is known or may not be read yet."""
        now_ms = self._source.monotonic_ms()
        try:
            key_id = _get_key_id(decode_token_parts(token)[0])
        except TokenRefused:
            return None
        if self._keys.is_refresh_due(now_ms):
            self._keys.fetch_keys_in_own_thread(self._source.run_in_own_thread, now_ms, lambda: None)
        if not self._keys.should_fetch_for_key(key_id, now_ms):
            return None
        return lambda then: self._keys.fetch_keys_in_own_thread(self._source.run_in_own_thread, now_ms, then)

    def get_identity_of_token(self, token: str) -> TokenIdentity:
        """Return the identity of a valid token. Raises TokenRefused."""
        header, claims, _ = decode_token_parts(token)
        fitting = [
            key for key in self._keys.find_keys(_get_key_id(header)) if header.get("alg") in _list_algorithms(key)
        ]
        if not any(_is_signed_by_key(key, token) for key in fitting[:TRIED_KEYS_MAX]):
            raise TokenRefused("no key of the issuer has signed it")
        expires_ms = self._check_time_claims(claims)
        self._check_issuer_claim(claims)
        _check_scope_claim(claims.get(self._expected.scope_claim))
        return TokenIdentity(get_name_claim(claims, self._expected.subject_claim).strip(), expires_ms)

    def _check_time_claims(self, claims: dict[str, Any]) -> int:
        """Return when a token expires, in ms since 1970. Raises TokenRefused if it has expired or is not valid yet."""
        now_ms, skew_ms = self._source.now_ms(), self._expected.skew_ms
        expires_ms, issued_ms, begins_ms = (get_time_claim_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires_ms is None or issued_ms is None:
            raise TokenRefused("it lacks exp or iat")
        if now_ms - skew_ms >= expires_ms:
            raise TokenRefused("it has expired")
        if begins_ms is not None and now_ms + skew_ms < begins_ms:
            raise TokenRefused("it is not valid yet")
        if expires_ms < max(issued_ms, begins_ms or issued_ms):
            raise TokenRefused("it expires before it begins")
        return expires_ms

    def _check_issuer_claim(self, claims: dict[str, Any]) -> None:
        if self._expected.issuer is not None and claims.get("iss") != self._expected.issuer:
            raise TokenRefused("it is of another issuer")
        if not self._expected.audience:
            return
        audience = claims.get("aud", [])
        given = [audience] if isinstance(audience, str) else audience
        if not isinstance(given, list):
            raise TokenRefused("its audience is none")
        if not any(each in self._expected.audience for each in given):
            raise TokenRefused("it is for another audience")


def _get_key_id(header: dict[str, Any]) -> str | None:
    """Return the key id in a token's header, or None. Raises TokenRefused."""
    key_id = header.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise TokenRefused("its key has no name")
    return key_id


def _list_algorithms(key: PyJWK) -> tuple[str, ...]:
    return ALGORITHMS[key.key_type or ""]


def _is_signed_by_key(key: PyJWK, token: str) -> bool:
    import jwt  # imported late; reading the keys has imported it already

    try:
        jwt.decode(token, key.key, algorithms=list(_list_algorithms(key)), options=ONLY_THE_SIGNATURE)
    except jwt.PyJWTError:
        return False
    return True


def _check_scope_claim(scope: Any) -> None:
    """Raise TokenRefused if a scope has empty or repeated words. A token needs no scope."""
    words = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    texts = [word.strip() for word in words if isinstance(word, str)]
    if len(texts) < len(words) or not all(texts) or len(set(texts)) < len(texts):
        raise TokenRefused("its scope has empty or repeated words")
