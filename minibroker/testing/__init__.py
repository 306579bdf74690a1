"""The test kit: a real broker on a real socket inside a test, which controls its faults, time and state.

Names are imported on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibroker.testing.broker import Broker as Broker
    from minibroker.testing.directories import Snapshot as Snapshot

_HOMES = {"Broker": "broker", "Snapshot": "directories"}

__all__ = ["Broker", "Snapshot"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
