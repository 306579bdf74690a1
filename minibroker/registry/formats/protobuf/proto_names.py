"""Finds types and extensions of .proto files by their names, from the place where a name stands.

The names of the messages around the place are tried before the name, the innermost first, then the parts of the
package, and then the name alone.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from minibroker.registry.formats.protobuf.protobuf_model import (
    SCALARS,
    EnumType,
    Field,
    File,
    Message,
    ProtoExtend,
    Type,
    parse_map_type,
)


class FoundType(NamedTuple):
    """A type, the package that it is in, and whether it is declared in the schema itself, and in no other one."""

    type: Type
    package: str
    local: bool


class NameScope(NamedTuple):
    """The place where a name stands: a package, and the messages around it from the outermost on."""

    package: str
    messages: tuple[str, ...] = ()

    def make_inner_scope(self, message: str) -> NameScope:
        """Return the scope within a message of this one."""
        return NameScope(self.package, (*self.messages, message))


class CollectedNames(NamedTuple):
    """Types and extensions by their full names."""

    types: dict[str, FoundType]
    extensions: dict[str, Field]


class ProtoNames:
    """The types and extensions of a file and those that it needs, by their full names."""

    def __init__(self, file: File, others: CollectedNames) -> None:
        """Take the names of a file and of `others`, among which the file itself may be."""
        own = _collect_names_of_file(file, includes_private_names=True)
        self.types: Mapping[str, FoundType] = ChainMap(own.types, others.types)
        self.extensions: Mapping[str, Field] = ChainMap(own.extensions, others.extensions)

    def resolve_type_name(self, name: str, scope: NameScope) -> str | None:
        """Return the full name of a type, or None if there is none."""
        return _resolve_name(self.types, name, scope)

    def resolve_extension(self, name: str, scope: NameScope) -> str | None:
        """Return the full name of an extension, or None if there is none."""
        return _resolve_name(self.extensions, name, scope)

    def find_type(self, name: str, scope: NameScope) -> FoundType | None:
        """Return a type, or None if there is none."""
        full = self.resolve_type_name(name, scope)
        return None if full is None else self.types[full]

    def find_map_entry(self, type_name: str, scope: NameScope) -> tuple[str, str] | None:
        """Return the types of keys and values, if a type is a map, or stands for the entries of one."""
        if type_name in SCALARS:
            return None
        if types := parse_map_type(type_name):
            return types
        found = self.find_type(type_name, scope)
        if found is None or not isinstance(found.type, Message) or not found.type.is_map_entry:
            return None
        by_name = {field.name: field.type for field in found.type.fields}
        return by_name.get("key", "string"), by_name.get("value", "string")


def collect_names(files: Iterable[File]) -> CollectedNames:
    """Return the types and extensions of files that others import."""
    all = CollectedNames({}, {})
    for file in files:
        found = _collect_names_of_file(file, includes_private_names=False)
        all.types.update(found.types)
        all.extensions.update(found.extensions)
    return all


def _collect_names_of_file(file: File, *, includes_private_names: bool) -> CollectedNames:
    """Return the types and extensions of a file."""
    package = file.package or ""
    prefix = f"{package}." if package else ""
    collected = CollectedNames({}, _collect_extensions(file.extends, prefix))
    pending: list[tuple[str, Type]] = [(prefix, each) for each in file.types]
    while pending:
        prefix, each = pending.pop()
        collected.types[prefix + each.name] = FoundType(each, package, includes_private_names)
        if isinstance(each, Message):
            inner = f"{prefix}{each.name}."
            pending += [(inner, nested) for nested in each.types]
            collected.extensions.update(_collect_extensions(each.extends, inner))
    return collected


def _collect_extensions(extends: Iterable[ProtoExtend], prefix: str) -> dict[str, Field]:
    """Return extension fields by full name; `prefix` is the scope in which they are declared."""
    return {prefix + field.name: field for extend in extends for field in extend.fields}


def is_enum(found_type: FoundType | None) -> bool:
    """Return whether a type is an enum."""
    return found_type is not None and isinstance(found_type.type, EnumType)


def _resolve_name(known_names: Mapping[str, object], name: str, scope: NameScope) -> str | None:
    """Return the full name, looked up from the innermost scope outwards; None if it is not known."""
    if name.startswith("."):
        return name[1:] if name[1:] in known_names else None
    around = [*filter(None, scope.package.split(".")), *scope.messages]
    while around:
        full = ".".join((*around, name))
        if full in known_names:
            return full
        around.pop()
    return name if name in known_names else None
