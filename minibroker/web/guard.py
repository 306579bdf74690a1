"""Who may ask an HTTP server of ours: whoever sends the token, or else this machine alone."""

from __future__ import annotations

import secrets

from minibroker.addresses import find_reason_to_refuse_request
from minibroker.web.messages import Request, RequestRefused


class RequestGuard:
    """Rejects requests of other sites' pages, and those without the token.

    Without a token the server must be asked by a name of this machine.
    """

    def __init__(self, token: str | None = None) -> None:
        self._wanted = None if token is None else f"Bearer {token}".encode()

    @property
    def needs_token(self) -> bool:
        """Return whether requests need a token."""
        return self._wanted is not None

    def __call__(self, request: Request) -> None:
        """Raise RequestRefused unless the request is to be answered."""
        refusal = find_reason_to_refuse_request(request.headers, is_private=self._wanted is None)
        if refusal is not None:
            raise RequestRefused(403, f"{refusal}; --control-token lets others in")
        if self._wanted is None:
            return
        given = request.headers.get("authorization", "").encode("latin-1")  # the bytes that came
        if not secrets.compare_digest(given, self._wanted):
            raise RequestRefused(401, "a bearer token is needed", {"www-authenticate": "Bearer"})
