"""An OAuth authorization server in memory, whose tokens a test broker accepts.

    GET  /.well-known/openid-configuration      its addresses
    GET  /jwks                                  its public keys (RFC 7517)
    POST /token                                 a token for a client, who is a user of the broker:
        grant_type=client_credentials               by password (client_secret_basic, client_secret_post)
                                                    or by an assertion that it has signed (RFC 7523, private_key_jwt)
        grant_type=...:jwt-bearer                   by an assertion alone

It listens from the broker's start on, at `test.issuer`, by default on the loopback address, where the broker always
finds the keys. Keys are made, and what makes them is imported, when somebody needs them.
"""

from __future__ import annotations

import json
import logging
import secrets
import ssl
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict, Unpack
from urllib.parse import parse_qs, unquote_plus

from minibroker.addresses import LOOPBACK, HostPort, bind_address
from minibroker.broker.lifecycle import StartError
from minibroker.broker.network.http_server import HttpRequest, HttpServer, encode_http_response
from minibroker.broker.security.exchanges import are_secrets_equal
from minibroker.quantities import Duration, parse_milliseconds
from minibroker.testing.completion import hide_names
from minibroker.testing.embedded.given_settings import AUDIENCE, TEST_ISSUER
from minibroker.testing.loops import BrokerLoop, LoopOwner, immediate

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from minibroker.testing.embedded.certificates import CertificateWithKey

log = logging.getLogger("minibroker.issuer")

LIFETIME: Final = "1 hour"
ALGORITHM: Final = "ES256"  # of tokens
CLIENTS_ALGORITHM: Final = "RS256"  # of assertions; Java has no other, and librdkafka signs by ES256 in another form
RSA_BITS: Final = 2048
CLIENT_CREDENTIALS: Final = "client_credentials"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
DISCOVERY: Final = ("/.well-known/openid-configuration", "/.well-known/oauth-authorization-server")


class TokenOptions(TypedDict, total=False):
    """What a token has: `expires_in`, "1 hour" by default; `audience`, "kafka" by default; `issuer`; `scope`.

    A token that is not `trusted` is signed by a key that the issuer does not have. `claims` replaces any claims.
    """

    expires_in: Duration
    audience: str
    issuer: str
    scope: str
    trusted: bool
    claims: Mapping[str, Any]


class TokenDenied(Exception):
    """A client gets no token; `error` is the code of RFC 6749."""

    def __init__(self, error: str, description: str) -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description


class _Key(NamedTuple):
    id: str
    private: EllipticCurvePrivateKey


@hide_names("loop", "start", "stop", "reset", "make_token_for_client")
class Issuer(LoopOwner):
    """The issuer of tokens for a broker's users, whose passwords are the secrets of clients."""

    def __init__(
        self, passwords: Mapping[str, str], certified: CertificateWithKey | None, address: HostPort, name: str
    ) -> None:
        """Clients find it at `address`, whose port 0 is any free one, by `name`; with a certificate, by HTTPS."""
        self._passwords = passwords
        self._certified = certified
        self._address = address
        self._name = name
        self._wall_ms: Callable[[], int] = lambda: 0
        self._server: HttpServer | None = None
        self._ports: tuple[int, int] = (0, 0)  # for clients, and for the broker
        self._keys: list[_Key] = []
        self._client_keys: dict[str, RSAPrivateKey] = {}
        self._options: TokenOptions = {}

    # --- its life -------------------------------------------------------------------------------

    async def start(self, loop: BrokerLoop, wall_ms: Callable[[], int]) -> None:
        """Listen, if it does not listen yet. Raises StartError."""
        if self._server is not None:
            return
        self._loop, self._wall_ms = loop, wall_ms
        self._server = HttpServer(self._answer_request, log)
        tls = None if self._certified is None else self._certified.make_server_context()
        clients = await self._listen_on(self._address, tls)
        is_for_both = tls is None and self._address.host == LOOPBACK
        self._ports = (clients, clients if is_for_both else await self._listen_on(HostPort(), None))

    async def _listen_on(self, address: HostPort, tls: ssl.SSLContext | None) -> int:
        """Listen on an address; return the port. Raises StartError."""
        assert self._server is not None
        try:
            listening = bind_address(address)
        except OSError as error:
            raise StartError(f"{TEST_ISSUER}: {error}") from None
        port: int = listening.getsockname()[1]
        await self._server.serve(listening, tls)
        return port

    def stop(self) -> None:
        """Stop listening. Keys and options stay."""
        if self._server is not None:
            self._server.stop()
            self._server = self._loop = None

    def reset(self) -> None:
        """Give clients good tokens again."""
        self._options = {}

    # --- for tests ------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Return its address, which is also the `iss` of its tokens. Raises NotRunning."""
        _ = self.loop
        name = f"[{self._name}]" if ":" in self._name else self._name
        return f"{'http' if self._certified is None else 'https'}://{name}:{self._ports[0]}"

    @property
    def token_endpoint(self) -> str:
        """Return the URL at which clients get tokens. Raises NotRunning."""
        return f"{self.url}/token"

    @property
    def jwks_url(self) -> str:
        """Return the URL of the public keys on this machine; it is http, so that its readers need no certificate."""
        _ = self.loop
        return f"http://{LOOPBACK}:{self._ports[1]}/jwks"

    @immediate
    def token(self, user: str, **options: Unpack[TokenOptions]) -> str:
        """Return a token of a user, who need not exist; see `TokenOptions`. Raises ValueError for a wrong duration."""
        return self._make_token(user, options)[0]

    @immediate
    def use_tokens(self, **options: Unpack[TokenOptions]) -> None:
        """Let clients get such tokens from now on, until a reset; without options, good ones. Raises ValueError."""
        self._make_token("nobody", options)
        self._options = options

    @immediate
    def rotate_keys(self, *, keep_old: bool = False) -> None:
        """Sign with a new key from now on, and forget the old ones unless `keep_old`.

        A broker reads the keys anew when a token has an unknown one.
        """
        self._keys = [_make_signing_key(), *(self._keys if keep_old else ())]

    @immediate
    def client_key(self, user: str) -> str:
        """Return the private key (PEM) with which a user signs assertions."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self._get_client_key(user).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    @immediate
    def assertion(self, user: str, *, expires_in: Duration = LIFETIME) -> str:
        """Return an assertion that a user has signed, as the token endpoint takes it. Raises ValueError."""
        now_s = self._wall_ms() // 1000
        times = {"iat": now_s, "exp": now_s + int(parse_milliseconds(expires_in) / 1000)}
        claims = {"iss": user, "sub": user, "aud": self.token_endpoint, "jti": secrets.token_hex(8), **times}
        import jwt

        return jwt.encode(claims, self._get_client_key(user), CLIENTS_ALGORITHM)

    @immediate
    def make_token_for_client(self, user: str, password: str) -> str:
        """Return what the token endpoint gives a client with this secret. Raises TokenDenied."""
        self._check_client_secret(user, password)
        return self._make_token(user, self._options)[0]

    # --- tokens ---------------------------------------------------------------------------------

    def _make_token(self, user: str, options: TokenOptions) -> tuple[str, int]:
        """Return a token, and the seconds until it expires."""
        now_s = self._wall_ms() // 1000
        lifetime_s = int(parse_milliseconds(options.get("expires_in", LIFETIME)) / 1000)
        claims = {
            "iss": options.get("issuer", self.url),
            "sub": user,
            "aud": options.get("audience", AUDIENCE),
            "scope": options.get("scope", AUDIENCE),
            "iat": now_s,
            "exp": now_s + lifetime_s,
            "jti": secrets.token_hex(8),
            **options.get("claims", {}),
        }
        key = self._get_signing_key()
        private = key.private if options.get("trusted", True) else _make_signing_key().private
        return _sign_claims(claims, _Key(key.id, private)), lifetime_s

    def _get_signing_key(self) -> _Key:
        if not self._keys:
            self._keys = [_make_signing_key()]
        return self._keys[0]

    def _get_client_key(self, user: str) -> RSAPrivateKey:
        from cryptography.hazmat.primitives.asymmetric import rsa

        if user not in self._client_keys:
            self._client_keys[user] = rsa.generate_private_key(65537, RSA_BITS)
        return self._client_keys[user]

    # --- over HTTP ------------------------------------------------------------------------------

    async def _answer_request(self, request: HttpRequest) -> bytes:
        if request.path == "/token":
            return (
                self._answer_token_request(request)
                if request.method == "POST"
                else _encode_answer("405 Method Not Allowed", {})
            )
        if request.method != "GET":
            return _encode_answer("405 Method Not Allowed", {})
        if request.path in DISCOVERY:
            return _encode_answer("200 OK", self._make_openid_configuration())
        if request.path == "/jwks":
            self._get_signing_key()
            return _encode_answer("200 OK", {"keys": [_make_jwk(key) for key in self._keys]})
        return _encode_answer("404 Not Found", {})

    def _make_openid_configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "token_endpoint": self.token_endpoint,
            "jwks_uri": f"{self.url}/jwks",
            "grant_types_supported": [CLIENT_CREDENTIALS, JWT_BEARER],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": [CLIENTS_ALGORITHM],
            "id_token_signing_alg_values_supported": [ALGORITHM],
            "response_types_supported": ["token"],
            "subject_types_supported": ["public"],
            "scopes_supported": [AUDIENCE],
        }

    def _answer_token_request(self, request: HttpRequest) -> bytes:
        """Return the HTTP answer to a request for a token, an error if it is denied."""
        try:
            form = _parse_form(request)
            user = self._identify_token_client(form, request.headers.get("authorization"))
        except TokenDenied as denied:
            log.info("no token: %s", denied.description)
            is_unknown = denied.error == "invalid_client"
            status = "401 Unauthorized" if is_unknown else "400 Bad Request"
            reason = {"error": denied.error, "error_description": denied.description}
            return _encode_answer(
                status, reason, {"WWW-Authenticate": 'Basic realm="minibroker"'} if is_unknown else {}
            )
        options = self._options if "scope" not in form else {"scope": form["scope"], **self._options}
        token, lifetime_s = self._make_token(user, options)
        scope = options.get("scope", AUDIENCE)
        return _encode_answer(
            "200 OK", {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s, "scope": scope}
        )

    def _identify_token_client(self, form: Mapping[str, str], authorization: str | None) -> str:
        """Return who asks for a token. Raises TokenDenied."""
        grant = form.get("grant_type")
        if grant == JWT_BEARER:
            return self._identify_assertion_signer(form.get("assertion", ""), "invalid_grant")
        if grant != CLIENT_CREDENTIALS:
            raise TokenDenied("unsupported_grant_type", f"only {CLIENT_CREDENTIALS} and {JWT_BEARER} are supported")
        methods = [authorization is not None, "client_secret" in form, "client_assertion" in form]
        if methods.count(True) > 1:
            raise TokenDenied("invalid_request", "more than one method of authentication")
        if "client_assertion" in form:
            return self._identify_by_assertion(form)
        if authorization is None:
            return self._check_client_secret(form.get("client_id", ""), form.get("client_secret", ""))
        given = _parse_basic(authorization)
        # RFC 6749 wants both encoded as in a form, which many clients do not do.
        return self._check_client_secret(*(given if self._is_client_secret(*given) else map(unquote_plus, given)))

    def _is_client_secret(self, user: str, password: str) -> bool:
        """Return whether a user has this password."""
        known = self._passwords.get(user)
        return known is not None and are_secrets_equal(known.encode(), password.encode())

    def _check_client_secret(self, user: str, password: str) -> str:
        """Return the user. Raises TokenDenied unless it exists and this is its password."""
        if not self._is_client_secret(user, password):
            raise TokenDenied("invalid_client", "no such client, or another secret")
        return user

    def _identify_by_assertion(self, form: Mapping[str, str]) -> str:
        """Return the user who authenticates by `client_assertion` (RFC 7523). Raises TokenDenied."""
        if form.get("client_assertion_type") != ASSERTION_TYPE:
            raise TokenDenied("invalid_request", f"client_assertion_type is {ASSERTION_TYPE}")
        user = self._identify_assertion_signer(form["client_assertion"], "invalid_client")
        if form.get("client_id", user) != user:
            raise TokenDenied("invalid_client", "client_id is another than the subject of the assertion")
        return user

    def _identify_assertion_signer(self, assertion: str, error: str) -> str:
        """Return the user who has signed an assertion. Raises TokenDenied."""
        import jwt

        try:
            user = str(jwt.decode(assertion, options={"verify_signature": False}).get("sub"))
            if user not in self._passwords:
                raise TokenDenied(error, "the assertion is of nobody who is known")
            key = self._client_keys[user].public_key()
            checked = {"verify_exp": False, "verify_iat": False, "verify_nbf": False, "require": ["iss", "exp"]}
            audience = [self.url, self.token_endpoint]
            claims = jwt.decode(assertion, key, [CLIENTS_ALGORITHM], checked, audience=audience, issuer=user)  # type: ignore[arg-type]
        except (jwt.PyJWTError, KeyError, TypeError):
            raise TokenDenied(error, "the assertion has another key, audience or issuer, or lacks a claim") from None
        expires_s = claims["exp"]
        if not isinstance(expires_s, int | float) or expires_s * 1000 <= self._wall_ms():
            raise TokenDenied(error, "the assertion has expired")
        return user


def _make_signing_key() -> _Key:
    from cryptography.hazmat.primitives.asymmetric import ec

    return _Key(secrets.token_hex(4), ec.generate_private_key(ec.SECP256R1()))


def _sign_claims(claims: dict[str, Any], key: _Key) -> str:
    import jwt  # it takes some time to import

    return jwt.encode(claims, key.private, ALGORITHM, {"kid": key.id})


def _make_jwk(key: _Key) -> dict[str, Any]:
    from jwt.algorithms import ECAlgorithm

    public = ECAlgorithm.to_jwk(key.private.public_key(), as_dict=True)
    return {**public, "kid": key.id, "use": "sig", "alg": ALGORITHM}


def _parse_form(request: HttpRequest) -> dict[str, str]:
    """Return the fields of a form. Raises TokenDenied for a field that is there twice."""
    try:
        fields = parse_qs(request.body.decode(), keep_blank_values=True, max_num_fields=20)
    except ValueError:
        raise TokenDenied("invalid_request", "the body is no form") from None
    if any(len(values) > 1 for values in fields.values()):
        raise TokenDenied("invalid_request", "a field is there twice")
    return {name: values[0] for name, values in fields.items()}


def _parse_basic(authorization: str) -> tuple[str, str]:
    """Return name and password of an Authorization header. Raises TokenDenied."""
    scheme, _, encoded = authorization.partition(" ")
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (NotBase64, ValueError):
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise TokenDenied("invalid_client", "the header Authorization is not Basic")
    return name, password


def _encode_answer(status: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> bytes:
    content = json.dumps(body).encode()
    return encode_http_response(status, content, "application/json", {"Cache-Control": "no-store", **(headers or {})})
