"""Writes what is generated of the kits."""

from __future__ import annotations

import sys
from pathlib import Path

from kits.generating.go import go_files
from kits.generating.java import java_files
from kits.generating.node import node_files
from kits.generating.operations import Description
from minibroker.testing import Broker
from minibroker.testing.control.app import make_control_app

KITS = Path(__file__).parents[1]


def generated() -> dict[str, str]:
    """Return the files by their paths below `kits/`."""
    description = Description(make_control_app(Broker(registry=True)).openapi_document)
    written = {"go": go_files, "java": java_files, "node": node_files}
    return {f"{kit}/{name}": text for kit, write in written.items() for name, text in write(description).items()}


def main() -> None:
    """Write the files."""
    for name, text in generated().items():
        path = KITS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
