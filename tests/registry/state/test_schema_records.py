"""GUIDs are those that Confluent's registry gave to the same schemas."""

from __future__ import annotations

import json
from pathlib import Path

from minibroker.registry.formats.schema import Reference
from minibroker.registry.state.schema_records import compute_guid

RECORDED = json.loads((Path(__file__).parents[1] / "formats/recorded/guids.json").read_text())


def test_schema_guids_equal_those_of_confluents_registry() -> None:
    """Those of each format are without anything, with rules, metadata, both of them, and so on with references."""
    references = tuple(Reference(*each) for each in RECORDED["references"])
    for kind, text in RECORDED["schemas"].items():
        found = [
            compute_guid(text, referring, metadata, rules)
            for referring in ((), references)
            for metadata in (None, RECORDED["metadata"])
            for rules in (None, RECORDED["ruleSet"])
        ]
        assert found == RECORDED["guids"][kind]
