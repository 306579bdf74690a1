"""docs/apis.md is up to date, and names every API once."""

from __future__ import annotations

from pathlib import Path

from minibroker.broker.requests.served import SERVED
from minibroker.cli.apis_help import OF_CONTROLLERS, markdown, served_rows
from minibroker.protocol.apis import ApiKey

DOCUMENT = Path(__file__).parents[2] / "docs" / "apis.md"


def test_the_document_is_made_from_the_tables() -> None:
    remedy = "make it anew: python3 -m minibroker.cli.apis_help > docs/apis.md"
    assert DOCUMENT.read_text() == markdown(), remedy


def test_every_api_is_in_one_table() -> None:
    served = [int(row[0]) for row in served_rows()]
    assert served == sorted(SERVED) == sorted(map(int, ApiKey))
    assert not OF_CONTROLLERS.keys() & set(served)
