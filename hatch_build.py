"""Adds to the package's metadata what depends on where it is released: its URLs, and absolute links in the README.

`REPOSITORY_URL` is set by the release workflow, such as https://github.com/OWNER/minibroker, and `REPOSITORY_REF` is
the released tag. Without them, as in a clone, the README is taken as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE_LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!https?://|#)([^)]+)(\))")


class ReleaseMetadata(MetadataHookInterface):
    """The hook that hatchling calls when it builds a wheel or an sdist."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme` and `urls`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository, ref = os.environ.get("REPOSITORY_URL", "").rstrip("/"), os.environ.get("REPOSITORY_REF", "HEAD")
        metadata["urls"] = {}
        if repository:
            text = RELATIVE_LINK.sub(lambda found: _absolute(found, repository, ref), text)
            metadata["urls"] = {
                "Homepage": repository,
                "Documentation": f"{repository}/tree/{ref}/docs",
                "Changelog": f"{repository}/blob/{ref}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def _absolute(link: re.Match[str], repository: str, ref: str) -> str:
    """Return a link with its URL: of the page that shows a file, or of an image itself."""
    mark, words, path, end = link.groups()
    return f"{mark}{words}{repository}/{'raw' if mark else 'blob'}/{ref}/{path}{end}"
