"""Requests to the coordinator of a group or of a transactional id, which may change, load, or be busy."""

from __future__ import annotations

from typing import Any, Literal

from minibroker.client.blocking import Client
from minibroker.client.client_connection import NEWEST
from minibroker.client.client_errors import ErrorReaction, check_error_code, choose_error_reaction
from minibroker.protocol.declare import Message
from minibroker.protocol.response_errors import collect_error_codes


def send_request_to_coordinator(
    client: Client,
    kind: Literal["group", "transaction"],
    key: str,
    request: Message,
    lowest: int = 0,
    highest: int = NEWEST,
    *,
    extra_timeout_ms: int = 0,
) -> Any:
    """Return the coordinator's answer, which may take `extra_timeout_ms` longer than others.

    Raises `ClientError`. The answer keeps errors that cannot be retried.
    """
    wait_ms = client.settings.request_timeout_ms + extra_timeout_ms

    def send_request() -> Any:
        node = client.find_coordinator(kind, key)
        answer = client.request(request, node, lowest=lowest, highest=highest, timeout_ms=wait_ms)
        for code in collect_error_codes(answer):
            if choose_error_reaction(code) in (ErrorReaction.RETRY, ErrorReaction.FIND_COORDINATOR):
                check_error_code(code, f"{client.address(node)}: {kind} {key}")
        return answer

    return client.retry(send_request, max(wait_ms, client.settings.api_timeout_ms) if extra_timeout_ms else None)
