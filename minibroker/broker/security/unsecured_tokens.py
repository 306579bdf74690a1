"""The validation of tokens without a signature, Kafka's default for OAUTHBEARER.

It is only for development: any client can make such tokens.

The options of the login module are Kafka's: `unsecuredValidatorPrincipalClaimName`, `...ScopeClaimName`,
`...RequiredScope` (words separated by spaces) and `...AllowableClockSkewMs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from minibroker.broker.security.exchanges import WaitForResult
from minibroker.broker.security.oauthbearer import (
    TokenIdentity,
    TokenRefused,
    decode_token_parts,
    get_name_claim,
    get_time_claim_ms,
)
from minibroker.jaas import JaasError

PREFIX: Final = "unsecuredValidator"
SKEW_DIGITS_MAX: Final = 9


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
    """Return the elements of the scope; a text is one, as in Kafka."""
    value = claims.get(claim_name)
    if isinstance(value, str):
        return [value.strip()]
    return [each.strip() for each in value if isinstance(each, str)] if isinstance(value, list) else []
