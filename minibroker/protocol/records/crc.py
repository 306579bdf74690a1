"""CRC-32C (Castagnoli), the checksum of record batches and producer snapshots."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, PathFinder

Crc32c = Callable[..., int]


def _load_extension() -> Crc32c | None:
    """Return the C function of the package crc32c without running the package's `__init__`; None if it is not found.

    That `__init__` imports importlib.metadata (and with it email and zipfile) for the package's version, which takes
    longer than importing all modules of the protocol.
    """
    package = PathFinder.find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    function: Crc32c | None = getattr(module, "crc32c", None)
    return function


def _load_crc32c() -> Crc32c:
    extension = _load_extension()
    if extension is not None:
        return extension
    if sys.platform == "emscripten":  # a browser, for which the package has no wheel
        from minibroker.protocol.records.crc_by_table import compute_crc32c as by_table

        return by_table
    import crc32c as package

    return package.crc32c


crc32c: Crc32c = _load_crc32c()
"""`crc32c(data, seed=0) -> int`: the CRC-32C of a contiguous bytes-like object, which is not copied.

`seed` is the checksum of the bytes before, so that `crc32c(b, crc32c(a)) == crc32c(a + b)`.
"""
