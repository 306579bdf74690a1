"""`NamedTuple` as typing has it, for modules that a start imports: it makes a class in a third of the time.

typing compiles each annotation when it makes the class, 0.1 ms in all, and a start makes more than fifty classes. Here
the annotations stay texts.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class Maker(type):
        """Makes a tuple with named fields of a class body with annotations."""

        def __new__(maker, name, bases, namespace):
            """Return the class, which has the methods of the body."""
            annotations = namespace.get("__annotations__", {})
            defaults = [namespace.pop(field) for field in annotations if field in namespace]
            made = namedtuple(name, annotations, defaults=defaults, module=namespace["__module__"])
            for name, value in namespace.items():
                setattr(made, name, value)
            return made

    class _NamedTuple:
        """Stands for the base in the head of a class."""

        def __mro_entries__(self, bases):
            return (BASE,)

    BASE = type.__new__(Maker, "NamedTuple", (), {})
    NamedTuple = _NamedTuple()
