"""Whether an Avro schema can read what was written with another one, by the rules of Java's SchemaCompatibility.

A place in a schema is a JSON pointer. Below a branch of a union, pointers begin anew, as they do in Java.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from minibroker.registry.formats.avro.avro_types import DEPTH_MAX, AvroField, AvroName, AvroType
from minibroker.registry.formats.comparing_budget import (
    ComparingBudget,
    ComparisonTooLarge,
    CountedChanges,
    remove_compared_pairs,
)

# Which other types a primitive type reads.
PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
SchemaPath = tuple[str, ...]
STEPS_OF_A_PAIR: Final = 3  # of types with names, which are remembered
ANY_SPACE: Final = "*"  # no namespace has this name

# Confluent's sentences; "{path}" and "{detail}" are filled here, "%s" by the registry.
SENTENCES: Final = {
    "FIXED_SIZE_MISMATCH": "The size of FIXED type field at path '{path}' in the %s schema does not match with the "
    "%s schema",
    "TYPE_MISMATCH": "The type (path '{path}') of a field in the %s schema does not match with the %s schema",
    "NAME_MISMATCH": "The name of the schema has changed (path '{path}')",
    "MISSING_ENUM_SYMBOLS": "The %s schema is missing enum symbols '{detail}' at path '{path}' in the %s schema",
    "MISSING_UNION_BRANCH": "The %s schema is missing a type inside a union field at path '{path}' in the %s schema",
    "READER_FIELD_MISSING_DEFAULT_VALUE": "The field '{detail}' at path '{path}' in the %s schema has no default "
    "value and is missing in the %s schema",
}


class TypeDifference(NamedTuple):
    """A reason why a reader cannot read: its kind by Java's name, the place, and Java's message."""

    kind: str
    path: SchemaPath
    detail: str

    def __str__(self) -> str:
        path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in self.path)
        sentence = SENTENCES[self.kind].format(path=path, detail=self.detail)
        return f"{{errorType:'{self.kind}', description:'{sentence}', additionalInfo:'{self.detail}'}}"


DifferencePart = TypeDifference | CountedChanges


class TypeComparison:
    """Compares pairs of types; those with names once, so that recursive schemas come to an end."""

    def __init__(self, budget: ComparingBudget) -> None:
        self._budget = budget
        self._known: dict[tuple[int, int], list[DifferencePart]] = {}
        self._branches: dict[int, dict[AvroName, list[AvroType]]] = {}  # of the reader's unions, by what they may read
        self._depth = 0

    def clear_compared_pairs(self) -> None:
        """Forget what was compared, in small portions, once the differences are not needed any more."""
        remove_compared_pairs(self._known, list(self._known))

    def compare_types(self, reader: AvroType, writer: AvroType, path: SchemaPath = ()) -> list[DifferencePart]:
        """Return what keeps the reader from reading; nothing if it can. Raises ComparisonTooLarge."""
        self._budget.spend_steps()
        is_named = reader.name is not None and writer.name is not None
        pair = id(reader), id(writer)
        if is_named:
            known = self._known.get(pair)
            if known is not None:
                return known
            self._budget.spend_steps(STEPS_OF_A_PAIR)
            self._known[pair] = []  # a recursive pair is compatible unless something else differs
        if self._depth >= DEPTH_MAX:
            raise ComparisonTooLarge(
                f"The schemas are too large to be compared: they are nested more than {DEPTH_MAX} deep"
            )
        self._depth += 1
        parts = self._find_incompatibilities(reader, writer, path)
        self._depth -= 1
        if is_named and parts:
            parts = self._known[pair] = [CountedChanges(parts)]
        return parts

    def _find_incompatibilities(self, reader: AvroType, writer: AvroType, path: SchemaPath) -> list[DifferencePart]:
        if reader.java_name == writer.java_name:
            return self._compare_types_of_same_kind(reader, writer, path)
        if writer.kind == "union":
            return [each for branch in writer.branches for each in self.compare_types(reader, branch)]
        if reader.kind == "union":
            if any(not self.compare_types(branch, writer) for branch in self._list_candidates(reader, writer)):
                return []
            return [_make_missing_branch_difference(writer, path)]
        if writer.kind in PROMOTIONS.get(reader.kind, ()):
            return []
        detail = f"reader type: {reader.java_name} not compatible with writer type: {writer.java_name}"
        return [TypeDifference("TYPE_MISMATCH", path, detail)]

    def _list_candidates(self, reader: AvroType, writer: AvroType) -> Sequence[AvroType]:
        """Return the branches of a reader's union that may read a type: all that differ in name cannot."""
        if writer.name is None:
            return reader.branches
        known = self._branches.get(id(reader))
        if known is None:
            known = self._branches[id(reader)] = {}
            for branch in reader.branches:
                self._budget.spend_steps(1 + len(branch.aliases))
                for name in () if branch.name is None else {AvroName(branch.name.simple, ANY_SPACE), *branch.aliases}:
                    known.setdefault(name, []).append(branch)
        return [*known.get(AvroName(writer.name.simple, ANY_SPACE), ()), *known.get(writer.name, ())]

    def _compare_types_of_same_kind(self, reader: AvroType, writer: AvroType, path: SchemaPath) -> list[DifferencePart]:
        if reader.kind == "union":
            return [
                _make_missing_branch_difference(branch, (*path, str(index)))
                for index, branch in enumerate(writer.branches)
                if self.compare_types(reader, branch)
            ]
        if reader.kind in ("array", "map"):
            part = "items" if reader.kind == "array" else "values"
            return self.compare_types(reader.element, writer.element, (*path, part))
        if reader.name is None:
            return []
        self._budget.spend_steps(len(reader.aliases) + len(reader.symbols) + len(writer.symbols))
        differences = _compare_names(reader, writer, path)
        if reader.kind == "fixed":
            differences += _compare_sizes(reader, writer, path)
        elif reader.kind == "enum":
            differences += _compare_symbols(reader, writer, path)
        for each in differences:
            self._budget.spend_steps_on_text(each.detail)
        return [*differences, *self._compare_fields(reader, writer, path)]

    def _compare_fields(self, reader: AvroType, writer: AvroType, path: SchemaPath) -> list[DifferencePart]:
        self._budget.spend_steps(len(writer.fields) + sum(1 + len(field.aliases) for field in reader.fields))
        parts: list[DifferencePart] = []
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            place = (*path, "fields", str(index))
            source = _find_writer_field(field, written)
            if source is not None:
                parts += self.compare_types(field.type, source.type, (*place, "type"))
            elif field.has_default:
                continue
            elif field.type.kind == "enum" and field.type.default is not None:
                parts += self.compare_types(field.type, writer, (*place, "type"))
            else:
                parts.append(TypeDifference("READER_FIELD_MISSING_DEFAULT_VALUE", place, field.name))
        return parts


def _find_writer_field(field: AvroField, writer_fields: dict[str, AvroField]) -> AvroField | None:
    """Return the field of the writer that a field of the reader reads, by its name or an alias."""
    return next((writer_fields[name] for name in (field.name, *field.aliases) if name in writer_fields), None)


def _make_missing_branch_difference(writer: AvroType, path: SchemaPath) -> TypeDifference:
    """Return the difference that no branch of the reader's union reads what the writer writes."""
    return TypeDifference("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.java_name}")


def _compare_names(reader: AvroType, writer: AvroType, path: SchemaPath) -> list[TypeDifference]:
    assert reader.name is not None and writer.name is not None
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    return [TypeDifference("NAME_MISMATCH", (*path, "name"), f"expected: {writer.full_name}")]


def _compare_sizes(reader: AvroType, writer: AvroType, path: SchemaPath) -> list[TypeDifference]:
    if reader.size == writer.size:
        return []
    return [TypeDifference("FIXED_SIZE_MISMATCH", (*path, "size"), f"expected: {writer.size}, found: {reader.size}")]


def _compare_symbols(reader: AvroType, writer: AvroType, path: SchemaPath) -> list[TypeDifference]:
    missing = sorted({*writer.symbols} - {*reader.symbols})
    if not missing or reader.default is not None:
        return []
    return [TypeDifference("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")]
