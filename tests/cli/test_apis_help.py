"""The site's page of APIs names every API once."""

from __future__ import annotations

from docs.pages.apis import OF_CONTROLLERS, markdown, served_rows
from minibroker.broker.requests.served import SERVED
from minibroker.protocol.apis import ApiKey


def test_the_apis_page_has_a_row_for_each_api() -> None:
    text = markdown()
    rows = [tuple(line.strip("| ").split(" | ")) for line in text.splitlines() if line.startswith("| ")]
    assert {row for row in rows if row[0].isdecimal()} == {
        *served_rows(),
        *((str(key), *row) for key, row in OF_CONTROLLERS.items()),
    }
    assert "| 3 | Metadata | 0-13 | `handlers/metadata.py` | always |\n" in text


def test_every_api_is_in_exactly_one_table_of_the_apis_page() -> None:
    served = [int(row[0]) for row in served_rows()]
    assert served == sorted(SERVED) == sorted(map(int, ApiKey))
    assert not OF_CONTROLLERS.keys() & set(served)
