"""The site: `python3 -m sphinx -W docs site` builds it from these pages."""

from inspect import iscoroutinefunction
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


def setup(app: Any) -> None:
    """Leave out of the reference the awaitable twins of methods, whose names begin with `a`."""

    def skip(app: Any, what: str, name: str, member: Any, skips: bool, options: Any) -> bool | None:
        # What `awaited` makes has a qualified name without a class.
        return True if iscoroutinefunction(member) and member.__qualname__ == name else None

    app.connect("autodoc-skip-member", skip)
