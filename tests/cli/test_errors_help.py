"""docs/errors.md is up to date."""

from __future__ import annotations

from pathlib import Path

from minibroker.cli.errors_help import markdown

DOCUMENT = Path(__file__).parents[2] / "docs" / "errors.md"


def test_the_document_is_made_from_the_codes() -> None:
    text = markdown()
    assert DOCUMENT.read_text() == text, "make it anew: python3 -m minibroker.cli.errors_help > docs/errors.md"
    assert "| 6 | NOT_LEADER_OR_FOLLOWER | look for the leader, then retry |\n" in text
    assert "| 29 | TOPIC_AUTHORIZATION_FAILED | report it |\n" in text
