"""`NamedTuple` as typing has it, for modules that a start imports: it makes a class in a fifth of the time.

typing compiles each annotation when it makes the class, and collections a function, 0.15 ms in all; a start makes more
than fifty classes. Here the annotations stay texts, and the functions are those of CREATING with other names.
"""

from __future__ import annotations

from collections import _tuplegetter, namedtuple  # type: ignore[attr-defined]  # the fields that namedtuple itself has
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    new = tuple.__new__
    # By the number of fields.
    CREATING = (
        lambda cls: new(cls),
        lambda cls, a: new(cls, (a,)),
        lambda cls, a, b: new(cls, (a, b)),
        lambda cls, a, b, c: new(cls, (a, b, c)),
        lambda cls, a, b, c, d: new(cls, (a, b, c, d)),
        lambda cls, a, b, c, d, e: new(cls, (a, b, c, d, e)),
        lambda cls, a, b, c, d, e, f: new(cls, (a, b, c, d, e, f)),
        lambda cls, a, b, c, d, e, f, g: new(cls, (a, b, c, d, e, f, g)),
    )
    FIELDS = [_tuplegetter(index, None) for index in range(len(CREATING))]

    class Named(tuple):
        """The methods of all of them."""

        __slots__ = ()
        _make = classmethod(new)

        def _replace(self, **values):
            made = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"{type(self).__name__} has no fields {list(values)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class Maker(type):
        """Makes a tuple with named fields of a class body with annotations."""

        def __new__(maker, name, bases, namespace):
            """Return the class, which has the methods of the body."""
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = tuple([namespace.pop(field) for field in fields if field in namespace])
            if len(fields) >= len(CREATING):
                made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
                for name, value in namespace.items():
                    setattr(made, name, value)
                return made
            code = CREATING[len(fields)].__code__
            code = code.replace(co_varnames=("cls", *fields), co_qualname=f"{name}.__new__")
            made = FunctionType(code, globals(), "__new__", defaults)
            known = {"__new__": made, "__slots__": (), "_fields": fields, "__match_args__": fields}
            return type(name, (Named,), {**namespace, **dict(zip(fields, FIELDS, strict=False)), **known})

    class _NamedTuple:
        """Stands for the base in the head of a class."""

        def __mro_entries__(self, bases):
            return (BASE,)

    BASE = type.__new__(Maker, "NamedTuple", (), {})
    NamedTuple = _NamedTuple()
