"""Each file, class, function and setting that the pages for developers name exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from minibroker.broker.configs.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS
from minibroker.broker.metadata.partitions import (
    GROUPS_TOPIC,
    METADATA_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
)
from tests.cases import for_each

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / name for name in ("architecture.md", "glossary.md")]
SPANS = sorted({span for page in PAGES for span in re.findall(r"`([^`\n]+)`", page.read_text())})
TOPICS = {METADATA_TOPIC, GROUPS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC, "_schemas"}
WORDS = {"minibroker", "await", "finally", "with", *TOPICS, *BROKER_SETTINGS, *TOPIC_SETTINGS}
EXAMPLES = {"@handles(ApiKey...)", 'cluster.settings["name"]', "(context, request) -> response | None"}


def path_of(span: str) -> Path | None:
    """Return the file or folder that a span names from the root or from the package, or None."""
    found = (
        base / span
        for base in (ROOT / "minibroker", ROOT)
        if ("/" in span or span.endswith(".py")) and (base / span).exists()
    )
    return next(found, None)


def names_in(file: Path) -> Iterator[str]:
    """Yield what a file defines: `name` at its top, `Class.name` in a class."""
    for node in ast.parse(file.read_text()).body:
        yield from defined(node)
        if isinstance(node, ast.ClassDef):
            inner = [name for each in node.body for name in defined(each)]
            inner += [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_own(each)]
            yield from (f"{node.name}.{name}" for name in inner)


def defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def is_own(node: ast.Attribute) -> bool:
    """Return whether the node sets an attribute of `self`."""
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


NAMED_FILES = [path for path in map(path_of, SPANS) if path is not None and path.suffix == ".py"]
DEFINED = {name for file in NAMED_FILES for name in names_in(file)}


@for_each("span", SPANS)
def test_all_names_on_the_architecture_pages_exist(span: str) -> None:
    assert path_of(span) is not None or span in DEFINED | WORDS | EXAMPLES


def test_every_package_and_module_group_is_on_the_page() -> None:
    rooms = [f"{path.parent.name}/" for path in (ROOT / "minibroker").glob("*/__init__.py")]
    rooms += [f"broker/{path.parent.name}/" for path in (ROOT / "minibroker" / "broker").glob("*/__init__.py")]
    assert [room for room in sorted(rooms) if room not in SPANS] == []
