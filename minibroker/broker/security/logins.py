"""What others than the authenticator may decide about a client that logs in by SASL; the test kit's faults do."""

from __future__ import annotations

from typing import Protocol

from minibroker.named_tuples import NamedTuple


class Login(NamedTuple):
    """A client that authenticates on a connection to a node. `user` is None while it only asks for the mechanism."""

    connection: object
    node_id: int
    client_id: str | None
    mechanism: str
    user: str | None


class Verdict(NamedTuple):
    """Whether a login is refused, how long that decision takes, and how long its session lasts at most."""

    is_refused: bool = False
    delay_ms: float = 0
    session_ms: int | None = None


class LoginJudge(Protocol):
    """Decides about logins."""

    def judge_login(self, login: Login) -> Verdict | None:
        """Return a verdict, or None to let the client go on."""
