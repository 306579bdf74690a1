"""The site: `python3 -m sphinx -W docs site` builds it from these pages, and from those that it writes before.

What it writes is not in git: it is generated from the source, as it is then.
"""

from importlib import import_module
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

from minibroker import __version__

project = "minibroker"
version = release = __version__
copyright = "the authors of minibroker"  # noqa: A001
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_title = f"minibroker {version}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_heading_anchors = 4  # links to headings, as on GitHub
default_role = "code"  # docstrings have Markdown's backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

GENERATED = ("apis", "commands", "errors", "metrics", "settings")


def write_pages(directory: Path) -> None:
    """Write the generated pages; one that is as it should be stays, so that it is not read again."""
    for name in GENERATED:
        page = directory / f"{name}.md"
        text = import_module(f"docs.pages.{name}").markdown()
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Write the generated pages, and leave out of the reference the awaitable twins of methods, `a...`."""
    write_pages(Path(app.srcdir))

    def skip(app: Any, what: str, name: str, member: Any, skips: bool, options: Any) -> bool | None:
        # What `awaited` makes has a qualified name without a class.
        return True if iscoroutinefunction(member) and member.__qualname__ == name else None

    app.connect("autodoc-skip-member", skip)
