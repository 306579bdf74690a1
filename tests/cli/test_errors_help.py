"""The site's page of errors has every error code, and what clients do about it."""

from __future__ import annotations

from docs.pages.errors import markdown
from minibroker.protocol.errors import ErrorCode


def test_the_errors_page_has_a_row_for_each_code() -> None:
    text = markdown()
    assert [code for code in ErrorCode if (f"\n| {code} | {code.name} | " in text) == (code is ErrorCode.NONE)] == []
    assert "| 6 | NOT_LEADER_OR_FOLLOWER | look for the leader, then retry |\n" in text
    assert "| 29 | TOPIC_AUTHORIZATION_FAILED | report it |\n" in text
