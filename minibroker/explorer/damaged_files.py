"""The damage of files, for the view of files: of one that is opened, and in short of all."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from minibroker.explorer.files_view import FindRoot, describe_files, find_file_below
from minibroker.protocol.explaining.parts import MOST_DECOMPRESSED_BYTES
from minibroker.storage.files import Disk
from minibroker.storage.inspection.inspected_files import InspectedFile, InspectionOptions, iterate_file_contents
from minibroker.storage.inspection.log_inspection import DamagedBytes
from minibroker.web.routes import Routes

MOST_INSPECTED_BYTES: Final = 256 << 20  # a larger log is not walked through for its damage
MOST_LISTED_BYTES: Final = 4 << 20  # half a second; a larger file is looked at once somebody opens it
MOST_DAMAGE: Final = 100
SECONDS: Final = 1.0  # in which all files are looked at


def make_damage_routes(root: FindRoot) -> Routes:
    """Return the paths of damage. Threads read the files, as they may be large."""
    routes = Routes("/files")
    damaged = DamagedFiles()

    @routes.get("/damage")
    async def get_damage(path: str) -> list[dict[str, Any]] | None:
        """Return what is wrong with a file, None if it is too large to tell; a log is compared with its indexes."""
        return await asyncio.to_thread(find_damage, find_file_below(root(), path))

    @routes.get("/damaged")
    async def list_damaged() -> dict[str, Any]:
        """Return how much damage each damaged file has; `unknown` files were not looked at."""
        return await asyncio.to_thread(damaged.count_damage_below, root())

    return routes


def find_damage(inspected: InspectedFile) -> list[dict[str, Any]] | None:
    """Return the first damage of a file, `MOST_DAMAGE` places at most, or None if the file is too large."""
    if Disk().size_bytes(inspected.path) > MOST_INSPECTED_BYTES:
        return None
    found = iterate_file_contents(
        Disk(), inspected, InspectionOptions(records=True, verify=True, most_bytes=MOST_DECOMPRESSED_BYTES)
    )
    damage = islice((each for each in found if isinstance(each, DamagedBytes)), MOST_DAMAGE)
    return [each._asdict() | {"path": os.path.basename(each.path)} for each in damage]


class DamagedFiles:
    """The damage of the files below a directory. A file that has not changed is not read again."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, int], int] = {}

    def count_damage_below(self, root: Path) -> dict[str, Any]:
        """Return how much damage each damaged file has. This ends after `SECONDS`; ask again for the rest.

        Large files are left out: one that grows would be read from its beginning each time.
        """
        ends = time.monotonic() + SECONDS
        base = root.parent if root.is_file() else root
        counts: dict[tuple[str, int, int], int] = {}
        damaged: dict[str, int] = {}
        unknown = 0
        for each in describe_files(root)["files"]:
            name = f"{each['folder']}/{each['name']}" if each["folder"] else each["name"]
            with suppress(OSError, LookupError):
                state = os.stat(base / name)
                key = name, state.st_size, state.st_mtime_ns
                if state.st_size > MOST_LISTED_BYTES or (key not in self._counts and time.monotonic() > ends):
                    unknown += 1
                    continue
                known = self._counts.get(key)
                counts[key] = len(find_damage(find_file_below(root, name)) or ()) if known is None else known
                damaged |= {name: counts[key]} if counts[key] else {}
        self._counts = counts
        return {"damaged": damaged, "unknown": unknown}
