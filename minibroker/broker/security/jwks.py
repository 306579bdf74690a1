"""The public keys of a token issuer, read from a file or a URL in a separate thread (RFC 7517).

They are read for the first token, again when a token names an unknown key, and again when they are old. If that fails,
it is logged, and the old keys stay.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from jwt import PyJWK

log = logging.getLogger("minibroker.connections")

SCHEMES: Final = ("file", "http", "https")
BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
SECONDS_MAX: Final = 10.0
CHUNK_BYTES: Final = 64 << 10

RunInOwnThread = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]


class KeySet:
    """The keys at one URL. Times are in ms of a monotonic clock."""

    def __init__(self, url: str, refresh_ms: int, backoff_ms: int, backoff_max_ms: int) -> None:
        self.url = url
        self._refresh_ms = refresh_ms
        self._backoff_ms = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._keys: list[PyJWK] = []
        self._read_ms: float | None = None  # the last successful read
        self._tried_ms: float | None = None
        self._failures = 0
        self._waiting: list[Callable[[], None]] | None = None  # the callbacks of a read in progress

    def find_keys(self, key_id: str | None) -> list[PyJWK]:
        """Return the keys with this id; all keys if it is None, as in a token without a key id."""
        return [key for key in self._keys if key_id is None or key.key_id == key_id]

    def is_refresh_due(self, now_ms: float) -> bool:
        """Return whether the keys should be read again. Until then they stay valid."""
        return (
            self._read_ms is not None and now_ms - self._read_ms >= self._refresh_ms and self._may_fetch_again(now_ms)
        )

    def should_fetch_for_key(self, key_id: str | None, now_ms: float) -> bool:
        """Return whether a key is unknown, and the keys may be read again now."""
        return not self.find_keys(key_id) and self._may_fetch_again(now_ms)

    def _may_fetch_again(self, now_ms: float) -> bool:
        if self._waiting is not None or self._tried_ms is None:
            return True
        pause_ms = min(self._backoff_ms * (1 << min(self._failures, 30)), self._backoff_max_ms)
        return now_ms - self._tried_ms >= pause_ms

    def fetch_keys_in_own_thread(
        self, run_in_own_thread: RunInOwnThread, now_ms: float, callback: Callable[[], None]
    ) -> None:
        """Read the keys and call `callback`. Calls during a read wait for that one."""
        if self._waiting is not None:
            self._waiting.append(callback)
            return
        self._waiting = [callback]
        self._tried_ms = now_ms
        keys: list[PyJWK] = []

        def fetch_all_keys() -> None:
            keys.extend(_fetch_keys(self.url))

        def store_fetched_keys(error: Exception | None) -> None:
            if error is None:
                self._keys, self._read_ms, self._failures = keys, now_ms, 0
            else:
                self._failures += 1
                log.error("the token issuer's keys at %s cannot be read: %s", self.url, error)
            waiting, self._waiting = self._waiting or [], None
            for each in waiting:
                each()

        run_in_own_thread(fetch_all_keys, store_fetched_keys)


def _fetch_keys(url: str) -> list[PyJWK]:
    """Return the public keys at a URL, without entries that cannot be used. Raises OSError or ValueError."""
    import json

    from jwt import PyJWK  # imported late: it takes 0.1 s
    from jwt.exceptions import PyJWTError

    try:
        listed = json.loads(_fetch_content(url))["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("there is no JSON object with keys") from None
    found = []
    for each in listed[:KEYS_MAX] if isinstance(listed, list) else []:
        try:
            key = PyJWK(each)
        except (PyJWTError, ValueError, TypeError, AttributeError, KeyError):
            continue  # an unknown type of key, or a malformed one
        if key.key_type in ("RSA", "EC", "OKP") and each.get("use", "sig") == "sig" and "d" not in each:
            found.append(key)
    return found


def _fetch_content(url: str) -> bytes:
    """Return the content of a URL. Raises OSError after SECONDS_MAX, ValueError if it is too large."""
    from urllib.error import HTTPError  # imported late, as it imports TLS
    from urllib.request import urlopen

    until = time.monotonic() + SECONDS_MAX  # real time, not the passed-in clock's: it limits a real server
    content = b""
    try:
        answer = urlopen(url, timeout=SECONDS_MAX)
    except HTTPError as refusal:
        refusal.close()  # it is the answer, too
        raise
    with answer:
        while chunk := answer.read1(CHUNK_BYTES) if hasattr(answer, "read1") else answer.read(CHUNK_BYTES):
            content += chunk
            if len(content) > BYTES_MAX:
                raise ValueError(f"there are more than {BYTES_MAX} bytes")
            if time.monotonic() > until:
                raise TimeoutError(f"it took longer than {SECONDS_MAX:.0f} s")
    return content


def find_url_objection(url: Any) -> str | None:
    """Return what is wrong with the URL of the keys, or None."""
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return "is no URL"
    if parts.scheme not in SCHEMES or not (parts.path if parts.scheme == "file" else parts.hostname):
        return f"must be a URL that begins with one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"
    return None
