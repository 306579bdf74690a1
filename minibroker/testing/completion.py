"""What editors and consoles offer of an object of the test kit: its public names, without those for the kit itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Kind = TypeVar("Kind", bound=type)


def hide_names(*names: str) -> Callable[[Kind], Kind]:
    """Return a class decorator that leaves `names`, and private names, out of `dir` of the instances."""

    def hide_from_dir(kind: Kind) -> Kind:
        def list_offered_names(self: object) -> Iterable[str]:
            return [
                name
                for name in object.__dir__(self)
                if name.startswith("__") or not (name.startswith("_") or name in names)
            ]

        kind.__dir__ = list_offered_names  # type: ignore[assignment]
        return kind

    return hide_from_dir
