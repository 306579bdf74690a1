"""Reading YAML, which needs PyYAML; the extra `minibroker[testing]` installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def parse_yaml(content: bytes) -> Any:
    """Return the content of a YAML document. Raises ValueError with one line, also if PyYAML is not installed."""
    try:
        import yaml
    except ImportError:
        raise ValueError("YAML needs the extra testing: python3 -m pip install pyyaml") from None
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def read_at_most(path: Path, maximum_bytes: int) -> bytes:
    """Return the content of a file. Raises ValueError for a larger one, and OSError."""
    with path.open("rb") as file:
        content = file.read(maximum_bytes + 1)
    if len(content) > maximum_bytes:
        raise ValueError(f"larger than {maximum_bytes} bytes")
    return content
