"""The SASL authentication of a connection: the order of its requests, its session, and how that ends.

    FIRST --ApiVersions--> VERSIONS_TOLD --SaslHandshake--> EXCHANGE --SaslAuthenticate...--> AUTHENTICATED
      +------------------- SaslHandshake ---------------------^  ^           |                 |        |
                                                                 |           v                 |    session over
                                                                 |         FAILED              |        v
                                                                 +------ SaslHandshake --------+---- EXPIRED

A session ends when the client's token expires, or after `connections.max.reauth.ms`. Before and after that, the client
may authenticate again (KIP-368), as the same principal and by the same mechanism. Any other request closes an expired
connection. A failure is answered after `connection.failed.authentication.delay.ms`, and then the connection is closed.

After a handshake of version 0, tokens are sent as frames without headers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.settings import Settings, SettingsError
from minibroker.broker.delayed_operations import Promise, Slicer, sleep
from minibroker.broker.network.authentication_statistics import AuthenticationStatistics
from minibroker.broker.network.framing import PREFIX
from minibroker.broker.security.exchanges import (
    AuthenticatedClient,
    AuthenticationFailed,
    Exchange,
    InvalidCredentials,
    SaslReply,
)
from minibroker.broker.security.logins import Login, LoginJudge, Verdict
from minibroker.broker.security.mechanisms import get_enabled_mechanisms
from minibroker.broker.security.principals import USER, Principal
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.legible import MESSAGE_CHARACTERS, shorten_text

if TYPE_CHECKING:
    from minibroker.broker.clock import Clock, Timer
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.network.connection import Connection, Outcome
    from minibroker.broker.security.scram import ScramMechanism, TokenLogin
    from minibroker.protocol.messages.metadata_records import UserScramCredentialRecord

log = logging.getLogger("minibroker.connections")

LEAST_BETWEEN_REAUTHENTICATIONS_MS: Final = 1000
LONGEST_TIMER_MS: Final = 10 * 365 * 86_400_000  # of a session; a longer lifetime is cut to this
NOT_YET: Final = "before the client has authenticated"
NONCE_BITS: Final = 160
SOME_USERS: Final = 1000  # whose credentials show how those of others may look
LONG_MAX: Final = (1 << 63) - 1


class AuthenticationState(Enum):
    """The state of a connection; see above."""

    FIRST = auto()
    VERSIONS_TOLD = auto()
    EXCHANGE = auto()
    AUTHENTICATED = auto()
    EXPIRED = auto()
    FAILED = auto()


# The APIs that a client may use while it has not authenticated, or when its session is over.
ADMITTED: Final = {
    AuthenticationState.FIRST: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    AuthenticationState.VERSIONS_TOLD: (ApiKey.SASL_HANDSHAKE,),
    AuthenticationState.EXCHANGE: (ApiKey.SASL_AUTHENTICATE,),
    AuthenticationState.AUTHENTICATED: (),
    AuthenticationState.EXPIRED: (ApiKey.SASL_HANDSHAKE,),
    AuthenticationState.FAILED: (),
}


Answered = TypeVar("Answered")
Answer = Callable[[SaslReply], Answered]
ADMIT: Final = Verdict()


class SaslListener:
    """The mechanisms of one listener, by the current settings."""

    def __init__(
        self,
        name: str,
        cluster: Callable[[], Cluster],
        clock: Clock,
        statistics: AuthenticationStatistics | None = None,
        judges: Sequence[LoginJudge] = (),
    ) -> None:
        """Read the static settings, and then the current ones. Raises SettingsError if the static ones are invalid."""
        self.judges = judges
        self.clock = clock
        self.statistics = statistics or AuthenticationStatistics()
        self.run_in_own_thread = clock.run_in_own_thread
        self._name = name
        self._cluster = cluster
        self._read_from = cluster().static_settings
        self._read_settings(self._read_from)
        self.reload_settings()

    def reload_settings(self) -> None:
        """Read the settings if they have changed. If they are invalid, log that and keep the old ones."""
        settings = self._cluster().settings
        if self._read_from is settings:
            return
        self._read_from = settings
        try:
            self._read_settings(settings)
        except SettingsError as error:
            log.error("clients authenticate as before: %s", error)

    def find_credential(self, name: str, mechanism: int) -> UserScramCredentialRecord | None:
        """Return the SCRAM credential of a user, or None."""
        return self._cluster().image.scram_credentials.get((name, mechanism))

    def iterate_credentials(self, mechanism: int) -> Iterator[UserScramCredentialRecord]:
        """Yield the SCRAM credentials of some users for a mechanism."""
        some = islice(self._cluster().image.scram_credentials.values(), SOME_USERS)
        return (each for each in some if each.mechanism == mechanism)

    def find_token_login(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        """Return what SCRAM needs to authenticate by a token, or None."""
        return self._cluster().image.tokens.find_token_login(token_id, mechanism)

    def make_nonce(self) -> str:
        """Return a random text that nobody can predict."""
        return f"{self._cluster().random.getrandbits(NONCE_BITS):x}"

    def now_ms(self) -> int:
        """Return ms since 1970."""
        return self.clock.wall_ms()

    def monotonic_ms(self) -> float:
        """Return the time of a monotonic clock in ms."""
        return self.clock.monotonic_ms()

    def _read_settings(self, settings: Settings) -> None:
        self.mechanisms = get_enabled_mechanisms(settings, self._name)
        self.limit_bytes: int = get_listener_setting(settings, "sasl.server.max.receive.size", self._name)
        self.failure_delay_ms: int = settings["connection.failed.authentication.delay.ms"]


class Authenticator:
    """The authentication of one client, which may do it again when its session ends."""

    __slots__ = (
        "_connection",
        "_exchange",
        "_failure",
        "_limit_bytes",
        "_listener",
        "_mechanism",
        "_previous",
        "_proven",
        "_reauthenticated_ms",
        "_state",
        "_timer",
        "_unwanted",
        "client_id",
    )

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self._limit_bytes = connection.limit_bytes
        self._state = AuthenticationState.FIRST
        self.client_id: str | None = None  # as the client named itself with the mechanism
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._previous: Principal | None = None  # while the client authenticates again, its principal before
        self._unwanted: str | None = None  # why the mechanism of a further authentication is refused
        self._proven: AuthenticatedClient | None = None  # while a judge delays the answer
        self._failure: SaslReply | None = None
        self._timer: Timer | None = None  # for the end of the session
        self._reauthenticated_ms = -float("inf")
        listener.reload_settings()
        self._require_authentication()

    # --- the order of requests ------------------------------------------------------------------

    @property
    def mechanism(self) -> str:
        """Return the SASL mechanism that the client has chosen, "" before that."""
        return self._mechanism

    def find_objection_to_request(self, api_key: int) -> str | None:
        """Return why this API may not be requested before authentication, or after its session; None if it may."""
        if api_key in ADMITTED[self._state]:
            return None
        if self._state is not AuthenticationState.EXPIRED:
            return NOT_YET
        self._listener.statistics.expired += 1
        return "after the session of the client has ended"

    @property
    def is_in_exchange(self) -> bool:
        """Return whether a SASL exchange is going on, in which the client must send its next token."""
        return self._state is AuthenticationState.EXCHANGE

    def send_refusal_after_delay(self, reason: str, answer_parts: list[Any]) -> Outcome:
        """Send the answer after the delay for failed logins, and close the connection."""
        return self._run_or_delay_coroutine(self._answer_refusal_after_delay(reason, lambda: answer_parts))

    def mark_api_versions_sent(self) -> None:
        """Note that the client has sent ApiVersions, which it may do once, as its first request."""
        if self._state is AuthenticationState.FIRST:
            self._state = AuthenticationState.VERSIONS_TOLD

    def may_begin_handshake(self) -> bool:
        """Return whether the client may send a SaslHandshake now.

        After an authentication it may do so only if its session has a limited lifetime, and at most once a second.
        """
        if self._state in (AuthenticationState.FIRST, AuthenticationState.VERSIONS_TOLD, AuthenticationState.FAILED):
            return True  # FAILED: the request that failed is run again
        if self._timer is None and self._state is not AuthenticationState.EXPIRED:
            return False
        return self._now_ms() - self._reauthenticated_ms >= LEAST_BETWEEN_REAUTHENTICATIONS_MS

    async def begin_sasl_exchange(
        self, mechanism: str, version: int, make_answer: Callable[[ErrorCode, list[str]], Answered]
    ) -> Answered:
        """Begin the exchange of a mechanism, or refuse it; return the result of `make_answer`."""
        self._listener.reload_settings()
        if self._state in (AuthenticationState.AUTHENTICATED, AuthenticationState.EXPIRED):
            self._begin_reauthentication(mechanism)
        enabled = self._listener.mechanisms
        if mechanism not in enabled or self._get_verdict_of_login_judges(mechanism, None).is_refused:
            others = [name for name in enabled if name != mechanism]
            refused = make_answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, others)
            return await self._answer_refusal_after_delay(
                "asked for a SASL mechanism that is not enabled", lambda: refused
            )
        self._state = AuthenticationState.EXCHANGE
        if self._unwanted is None:
            self._mechanism = mechanism
            self._exchange = enabled[mechanism].begin(self._listener)
        if version == 0:
            self._connection.set_token_frame_executor(self._evaluate_headerless_token)
        return make_answer(ErrorCode.NONE, list(enabled))

    def _begin_reauthentication(self, mechanism: str) -> None:
        """Prepare for another login of the client, whose principal and mechanism must stay the same."""
        self._stop_session_timer()
        self._previous = self._connection.principal
        self._reauthenticated_ms = self._now_ms()
        if mechanism != self._mechanism:
            self._unwanted = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism}'"
            )
        self._require_authentication()

    def _require_authentication(self) -> None:
        """Allow the client only to authenticate, in small frames."""
        self._connection.must_authenticate = True
        self._connection.template = None
        self._connection.limit_bytes = self._listener.limit_bytes

    # --- the exchange ---------------------------------------------------------------------------

    async def evaluate_token(self, token: bytes, make_answer: Answer[Answered]) -> Answered:
        """Evaluate the client's next token; return what `make_answer` returns for the reply."""
        if self._failure is not None:  # the request that failed is run again
            return await self._refuse_client_with_reply(self._failure, make_answer)
        if self._proven is not None:  # so it does here
            return await self._conclude_sasl_exchange(self._proven, make_answer)
        if self._unwanted is not None:
            return await self._refuse_client_with_reply(_make_refusal_reply(self._unwanted), make_answer)
        if self._exchange is None:
            raise ValueError("a SASL token without a handshake before it")
        try:
            challenge = self._exchange.send(token)
            while not isinstance(challenge, bytes):
                known: Promise[None] = Promise()
                challenge(partial(known.resolve, None))
                await known
                challenge = self._exchange.send(token)
        except StopIteration as end:
            return await self._conclude_sasl_exchange(end.value, make_answer)
        except AuthenticationFailed as error:
            return await self._refuse_client_with_reply(_make_refusal_reply(str(error)), make_answer)
        except InvalidCredentials as error:
            return await self._refuse_client_with_reply(self._make_invalid_credentials_reply(), make_answer, str(error))
        return make_answer(SaslReply(ErrorCode.NONE, "", challenge, 0))

    async def _conclude_sasl_exchange(
        self, authenticated: AuthenticatedClient, make_answer: Answer[Answered]
    ) -> Answered:
        """Accept a client with a proven identity, unless its principal has changed or a judge of logins refuses it."""
        principal = Principal(USER, authenticated.name)
        if self._previous not in (None, principal):
            before = self._previous
            return await self._refuse_client_with_reply(
                _make_refusal_reply(
                    f"Cannot change principals during re-authentication from {before.type}.{before.name}: "
                    f"{principal.type}.{principal.name}"
                ),
                make_answer,
            )
        verdict = self._get_verdict_of_login_judges(self._mechanism, authenticated.name)
        if verdict.delay_ms:
            self._proven = authenticated
            await sleep(self._listener.clock, verdict.delay_ms)
        self._proven = None
        if verdict.is_refused:
            return await self._refuse_client_with_reply(
                self._make_invalid_credentials_reply(), make_answer, "they are refused all the same"
            )
        return self._accept_client(authenticated, verdict.session_ms, make_answer)

    def _get_verdict_of_login_judges(self, mechanism: str, user: str | None) -> Verdict:
        """Return the combined verdict of all judges of logins: any refusal, the sum of delays, the shortest session."""
        login = Login(self._connection, self._connection.node.node_id, self.client_id, mechanism, user)
        verdicts = [verdict for each in self._listener.judges if (verdict := each.judge_login(login)) is not None]
        if not verdicts:
            return ADMIT
        sessions = [verdict.session_ms for verdict in verdicts if verdict.session_ms is not None]
        return Verdict(
            any(verdict.is_refused for verdict in verdicts),
            sum(verdict.delay_ms for verdict in verdicts),
            min(sessions, default=None),
        )

    def _accept_client(
        self, authenticated: AuthenticatedClient, session_ms: int | None, make_answer: Answer[Answered]
    ) -> Answered:
        """Let the client send requests as its principal from now on; return the answer that says so."""
        statistics = self._listener.statistics
        if self._previous is None:
            statistics.succeeded += 1
        else:
            statistics.reauthenticated += 1
        self._state = AuthenticationState.AUTHENTICATED
        self._exchange = None
        connection = self._connection
        connection.principal = Principal(USER, authenticated.name)
        connection.has_token = authenticated.has_token
        connection.template = None
        connection.must_authenticate = False
        connection.limit_bytes = self._limit_bytes
        connection.set_token_frame_executor(None)
        return make_answer(
            SaslReply(
                ErrorCode.NONE,
                "",
                authenticated.token,
                self._begin_authenticated_session(authenticated.expires_ms, session_ms),
            )
        )

    def _begin_authenticated_session(self, expires_ms: int | None, session_ms: int | None) -> int:
        """Start the timer of the session; return its lifetime in ms, 0 for one without a limit."""
        limits = [] if session_ms is None else [session_ms]
        if expires_ms is not None:
            limits.append(expires_ms - self._listener.clock.wall_ms())
        mechanism = self._listener.mechanisms.get(self._mechanism)
        if mechanism is not None and mechanism.max_reauth_ms > 0:
            limits.append(mechanism.max_reauth_ms)
        if not limits:
            return 0
        lifetime_ms = min(max(0, min(limits)), LONG_MAX)
        if lifetime_ms == 0:  # no further request is served, not even one that was sent with the last token
            self._expire_session()
            return 0
        self._timer = self._listener.clock.call_later(min(lifetime_ms, LONGEST_TIMER_MS), self._expire_session)
        return lifetime_ms

    def _expire_session(self) -> None:
        self._timer = None
        self._state = AuthenticationState.EXPIRED
        self._connection.must_authenticate = True
        self._connection.template = None

    # --- tokens without headers -----------------------------------------------------------------

    def _evaluate_headerless_token(self, _: Connection, frame: memoryview) -> Outcome:
        """Handle a token that was sent as a frame without a header."""
        try:
            return self._run_or_delay_coroutine(self.evaluate_token(bytes(frame), _encode_headerless_token))
        except Exception as error:
            self._log_failure(error)
        self._connection.close_after_answers()
        return None

    def _run_or_delay_coroutine(self, coroutine: Coroutine[Any, Any, list[Any] | None]) -> Outcome:
        """Run the coroutine; return the items to send, or the operation that continues it after a wait."""
        return Slicer().run_or_delay(coroutine, self._connection.send_delayed_answer, self._log_and_close_connection)

    def _log_and_close_connection(self, error: Exception) -> None:
        self._log_failure(error)
        self._connection.close_after_failure()

    def _log_failure(self, error: Exception) -> None:
        connection = self._connection
        log.error("closing %s: a SASL token failed", connection.peer, extra=connection.log_fields, exc_info=error)

    # --- failure --------------------------------------------------------------------------------

    def _make_invalid_credentials_reply(self) -> SaslReply:
        if self._mechanism == "PLAIN":
            return _make_refusal_reply("Authentication failed: Invalid username or password")
        doing = "authentication" if self._previous is None else "re-authentication"
        told = f"Authentication failed during {doing} due to invalid credentials with SASL mechanism"
        return _make_refusal_reply(f"{told} {self._mechanism}")

    async def _refuse_client_with_reply(
        self, reply: SaslReply, make_answer: Answer[Answered], reason: str = ""
    ) -> Answered:
        """Refuse the client with `reply`. Only the log gets `reason`."""
        self._failure = reply
        return await self._answer_refusal_after_delay(
            f"{reply.message}{reason and ': '}{reason}", lambda: make_answer(reply)
        )

    async def _answer_refusal_after_delay(self, reason: str, make_answer: Callable[[], Answered]) -> Answered:
        """Return the refusal after the delay for failed logins, and close the connection behind it."""
        connection = self._connection
        log.info("closing %s: %s", connection.peer, reason, extra=connection.log_fields)
        if self._state is not AuthenticationState.FAILED:  # FAILED: the request that failed is run again
            self._count_authentication_failure()
        self._state = AuthenticationState.FAILED
        if self._listener.failure_delay_ms:
            await sleep(self._listener.clock, self._listener.failure_delay_ms)
        connection.close_after_answers()
        return make_answer()

    def _count_authentication_failure(self) -> None:
        if self._previous is None:
            self._listener.statistics.failed += 1
        else:
            self._listener.statistics.reauthentication_failed += 1

    def on_connection_lost(self) -> None:
        """Stop the session timer, as the connection is closed."""
        self._stop_session_timer()

    def _stop_session_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now_ms(self) -> float:
        return self._listener.clock.monotonic_ms()


def _make_refusal_reply(message: str) -> SaslReply:
    return SaslReply(ErrorCode.SASL_AUTHENTICATION_FAILED, shorten_text(message, MESSAGE_CHARACTERS), b"", 0)


def _encode_headerless_token(reply: SaslReply) -> list[Any]:
    """Return the frame of a reply without a header; a failure has none."""
    return [] if reply.error_code else [PREFIX.pack(len(reply.token)) + reply.token]
