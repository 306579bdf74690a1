"""Credentials from settings: Java's JAAS configuration in one line, or librdkafka's separate settings.

Tokens for OAUTHBEARER come from an endpoint by client credentials, from a file, or are made here, unsecured. A JAAS
configuration names their options as Kafka's login module does.

`client_mechanisms` has what is sent over the wire.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlencode, urlsplit

from minibroker import jaas
from minibroker.client.client_errors import SettingError, TokenError
from minibroker.client.client_mechanisms import (
    SCRAM_HASHES,
    MechanismExchange,
    authenticate_by_oauthbearer,
    authenticate_by_plain,
    authenticate_by_scram,
)
from minibroker.client.client_tls import make_tls_context
from minibroker.jaas import JaasError, LoginModule

URL: Final = "sasl.oauthbearer.token.endpoint.url"
TIMEOUT_S: Final = 10
ANSWER_BYTES: Final = 1 << 20  # the longest answer of a token endpoint
EXTENSION: Final = "extension_"
STRING_CLAIM: Final = "unsecuredLoginStringClaim_"
NUMBER_CLAIM: Final = "unsecuredLoginNumberClaim_"
UNSECURED_EXTENSION: Final = "unsecuredLoginExtension_"
# librdkafka's two settings for unsecured tokens, and Java's names for the options in the second one.
UNSECURED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
UNSECURED_CONFIG: Final = "sasl.oauthbearer.config"
UNSECURED_NAMES: Final = {"principal": f"{STRING_CLAIM}sub", "lifeSeconds": "unsecuredLoginLifetimeSeconds"}
LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
# The settings by which librdkafka chooses whom to trust at an https: endpoint, and their names in `client_tls`.
HTTPS: Final = {"https.ca.pem": "ssl.truststore.certificates", "https.ca.location": "ssl.truststore.location"}
RENEW_AT: Final = 0.8  # of a token's life
JAAS: Final = "sasl.jaas.config"
MODULES: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": tuple(SCRAM_HASHES),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
MECHANISMS: Final = tuple(mechanism for mechanisms in MODULES.values() for mechanism in mechanisms)
# The settings of OAUTHBEARER.
OAUTH: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    UNSECURED,
    UNSECURED_CONFIG,
    *HTTPS,
)
HANDLER: Final = "sasl.login.callback.handler.class"
HANDLERS: Final = tuple(  # of Java's that do the same
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)


class TokenSource:
    """A source of tokens. It fetches a new token when most of the last one's lifetime is over."""

    def __init__(self, fetch: Callable[[], tuple[str, float]], extensions: Mapping[str, str]) -> None:
        self._fetch = fetch
        self._extensions = dict(extensions)
        self._token = ""
        self._until = 0.0

    def get_token(self) -> str:
        """Return a valid token. Raises `TokenError`."""
        if time.monotonic() >= self._until:
            self._token, life_s = self._fetch()
            self._until = time.monotonic() + life_s * RENEW_AT
        return self._token

    def get_extensions(self) -> dict[str, str]:
        """Return the SASL extensions, which are sent beside the token (KIP-342)."""
        return self._extensions


def make_token_source(module: Mapping[str, str], settings: Mapping[str, str]) -> TokenSource:
    """Return the source of tokens for a login module's options and `sasl.oauthbearer.*`. Raises `SettingError`."""
    if settings.get("sasl.oauthbearer.method", "oidc").lower() not in ("oidc", "default"):
        raise SettingError("sasl.oauthbearer.method must be oidc or default")
    url = settings.get(URL)
    is_unsecured = settings.get(UNSECURED, "false").strip().lower() == "true"
    if UNSECURED_CONFIG in settings and not is_unsecured:
        raise SettingError(f"{UNSECURED_CONFIG} is for unsecured tokens, which need {UNSECURED}=true")
    if url is not None and is_unsecured:
        raise SettingError(f"{UNSECURED} is for unsecured tokens, which do not come from {URL}")
    if url is None:
        return _make_unsecured_token_source({**module, **_parse_librdkafka_claims(settings)})
    if url.startswith("file:"):
        path = Path(unquote(urlsplit(url).path))
        return TokenSource(lambda: _read_token_file(path), _collect_extensions(module, settings, EXTENSION))
    return _make_endpoint_token_source(url, module, settings)


def _make_endpoint_token_source(url: str, module: Mapping[str, str], settings: Mapping[str, str]) -> TokenSource:
    """Return a source that gets tokens from an endpoint by client credentials. Raises `SettingError`."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise SettingError(f"{URL} must begin with https:, http: or file:")
    own = {"clientId", "clientSecret", "scope"}
    tls = {HTTPS[name]: settings[name] for name in HTTPS if name in settings}
    tls |= {name: value for name, value in module.items() if name.startswith("ssl.")}
    for name in sorted(name for name in module if name not in {*own, *tls} and not name.startswith(EXTENSION)):
        raise SettingError(f"sasl.jaas.config: unknown option {name}")

    def get_setting(name: str, *other_names: str) -> str | None:
        return next((value for key in other_names if (value := settings.get(key)) is not None), module.get(name))

    prefix = "sasl.oauthbearer.client"
    client_id = get_setting("clientId", f"{prefix}.credentials.client.id", f"{prefix}.id")
    secret = get_setting("clientSecret", f"{prefix}.credentials.client.secret", f"{prefix}.secret")
    if client_id is None or secret is None:
        raise SettingError("sasl.jaas.config must give clientId and clientSecret for a token endpoint")
    scope = get_setting("scope", "sasl.oauthbearer.scope")
    context = _make_tls_context(tls)
    return TokenSource(
        lambda: _request_token(url, client_id, secret, scope, context), _collect_extensions(module, settings, EXTENSION)
    )


def _make_tls_context(tls: dict[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context of these settings, None for the machine's own. Raises `SettingError`."""
    context = make_tls_context(tls, bool(tls))
    for name in tls:
        raise SettingError(f"sasl.jaas.config: unknown option {name}")
    return context


def _request_token(
    url: str, client_id: str, secret: str, scope: str | None, context: ssl.SSLContext | None
) -> tuple[str, float]:
    """Return a token from an endpoint, and the seconds for which it is valid. Raises `TokenError`.

    It is asked for by client credentials (RFC 6749, 4.4), with the secret in the header, as in Kafka's clients.
    """
    import urllib.error  # here: importing it takes longer than importing the rest of the client
    import urllib.request

    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    credentials = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    request = urllib.request.Request(url, urlencode(form).encode(), {"Accept": "application/json"})
    request.add_unredirected_header("Authorization", f"Basic {credentials}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            document: dict[str, Any] = json.loads(answer.read(ANSWER_BYTES))
        return str(document["access_token"]), float(document.get("expires_in", 0))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is the answer, too
        raise TokenError(f"no token from {url}: {type(error).__name__}: {error}") from None


def _read_token_file(path: Path) -> tuple[str, float]:
    """Return the token in a file, and 0 s, as another process renews it: it is read again for every connection."""
    try:
        return path.read_text().strip(), 0.0
    except OSError as error:
        raise TokenError(f"no token: {error}") from None


def _make_unsecured_token_source(module: Mapping[str, str]) -> TokenSource:
    """Return a source of tokens without a signature, like those of Kafka's login module (RFC 7519, 6). For tests."""
    claims: dict[str, Any] = {}
    for name, value in module.items():
        if name.startswith(STRING_CLAIM):
            claims[name.removeprefix(STRING_CLAIM)] = value
        elif name.startswith(NUMBER_CLAIM):
            claims[name.removeprefix(NUMBER_CLAIM)] = _parse_number_of_setting(name, value)
        elif not name.startswith(UNSECURED_EXTENSION) and name != LIFETIME:
            raise SettingError(f"sasl.jaas.config: unknown option {name} (and there is no {URL})")
    if "sub" not in claims:
        raise SettingError(
            f"{URL} is missing: OAUTHBEARER needs it, or {STRING_CLAIM}sub in sasl.jaas.config for tests"
        )
    life_s = _parse_number_of_setting(LIFETIME, module.get(LIFETIME, "3600"))
    return TokenSource(
        lambda: (_make_unsigned_token(claims, life_s), life_s), _collect_extensions(module, {}, UNSECURED_EXTENSION)
    )


def _parse_librdkafka_claims(settings: Mapping[str, str]) -> dict[str, str]:
    """Parse `principal=alice lifeSeconds=60 extension_a=b`, and return it by the names of Java's login module."""
    claims = {}
    for pair in settings.get(UNSECURED_CONFIG, "").split():
        name, equals, value = pair.partition("=")
        known = UNSECURED_NAMES.get(name)
        if name.startswith(EXTENSION):
            known = UNSECURED_EXTENSION + name.removeprefix(EXTENSION)
        if not equals or known is None:
            raise SettingError(f"{UNSECURED_CONFIG}: {name!r} is not {', '.join(UNSECURED_NAMES)} or {EXTENSION}NAME")
        claims[known] = value
    return claims


def _make_unsigned_token(claims: Mapping[str, Any], life_s: float) -> str:
    now = time.time()
    parts: list[Mapping[str, Any]] = [{"alg": "none"}, {"iat": now, "exp": now + life_s, **claims}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(encoded) + "."


def _collect_extensions(module: Mapping[str, str], settings: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the extensions of the login module and of librdkafka's setting: `name=value`, separated by commas."""
    found = {name.removeprefix(prefix): value for name, value in module.items() if name.startswith(prefix)}
    for pair in filter(None, settings.get("sasl.oauthbearer.extensions", "").split(",")):
        name, equals, value = pair.strip().partition("=")
        if not equals:
            raise SettingError("sasl.oauthbearer.extensions must be name=value, separated by commas")
        found[name] = value
    return found


def _parse_number_of_setting(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise SettingError(f"sasl.jaas.config: {name} must be a number, not {value!r}") from None


class Credentials(NamedTuple):
    """A mechanism, and a function that begins its exchange, and may fetch a token for it. No secret is in the repr."""

    mechanism: str
    exchange: Callable[[], MechanismExchange]


def pop_credentials(settings: dict[str, str], is_required: bool) -> Credentials | None:
    """Take out the settings of SASL. Return the credentials, None unless `is_required`. Raises `SettingError`."""
    mechanism = settings.pop("sasl.mechanism", None) or settings.pop("sasl.mechanisms", None)
    settings.pop("sasl.mechanisms", None)
    text = settings.pop(JAAS, None)
    given = {name: settings.pop(f"sasl.{name}", None) for name in ("username", "password")}
    oauth = {name: value for name in OAUTH if (value := settings.pop(name, None)) is not None}
    handler = settings.pop(HANDLER, None)
    if handler not in (None, *HANDLERS):
        raise SettingError(f"{HANDLER} can only be {HANDLERS[0]}, not {handler}")
    module = None if text is None else parse_login_module(text)
    if not is_required:
        return None
    mechanism = _parse_mechanism(mechanism, module)
    if mechanism == "OAUTHBEARER":
        tokens = make_token_source({} if module is None else module.options, oauth)
        return Credentials(mechanism, lambda: authenticate_by_oauthbearer(tokens.get_token(), tokens.get_extensions()))
    username, password, is_token = _get_user_and_password(mechanism, module, given)
    if mechanism == "PLAIN":
        return Credentials(mechanism, lambda: authenticate_by_plain(username, password))
    return Credentials(
        mechanism, lambda: authenticate_by_scram(SCRAM_HASHES[mechanism], username, password, is_token=is_token)
    )


def _parse_mechanism(mechanism: str | None, module: LoginModule | None) -> str:
    """Return the checked mechanism. There is no default: Java's is GSSAPI, which is not supported."""
    if mechanism is None:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    mechanism = mechanism.strip().upper()
    if mechanism not in MECHANISMS:
        raise SettingError(f"sasl.mechanism must be one of {', '.join(MECHANISMS)}, not {mechanism!r}")
    if module is not None and mechanism not in MODULES[module.name]:
        raise SettingError(f"{JAAS}: {module.name} does not support {mechanism}")
    return mechanism


def _get_user_and_password(
    mechanism: str, module: LoginModule | None, given_settings: Mapping[str, str | None]
) -> tuple[str, str, bool]:
    """Return name and password, and whether they are a delegation token's, which only SCRAM supports."""
    options = {} if module is None else dict(module.options)
    username = options.pop("username", given_settings["username"])
    password = options.pop("password", given_settings["password"])
    is_token = mechanism in SCRAM_HASHES and options.pop("tokenauth", "").lower() == "true"
    for name in sorted(options):
        raise SettingError(f"{JAAS}: unknown option {name}")
    if not username or password is None:
        raise SettingError(
            f"{JAAS} must give a username and a password for {mechanism} (or sasl.username and sasl.password)"
        )
    return username, password, is_token


def parse_login_module(text: str) -> LoginModule:
    """Parse `CLASS required NAME="VALUE" ...;`. The result's class has no package. Raises `SettingError`."""
    try:
        module = jaas.parse_login_module(text)
    except JaasError as error:
        raise SettingError(f"{JAAS}: {error}") from None
    name = module.name.rpartition(".")[2]
    if name not in MODULES:
        raise SettingError(f"{JAAS}: {module.name} is none of {', '.join(MODULES)}")
    return LoginModule(name, module.options)
