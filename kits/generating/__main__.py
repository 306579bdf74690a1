"""Writes what is generated of the kits, or, with a directory, writes it there."""

from __future__ import annotations

import sys
from pathlib import Path

from kits.generating.go import go_files
from kits.generating.operations import Description
from minibroker.testing import Broker
from minibroker.testing.control.app import control_app

KITS = Path(__file__).parents[1]


def generated() -> dict[str, str]:
    """Return the files by their paths below `kits/`."""
    description = Description(control_app(Broker(registry=True)).description)
    return {f"go/{name}": text for name, text in go_files(description).items()}


def main() -> None:
    """Write the files, and format those in Go."""
    for name, text in generated().items():
        path = KITS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
