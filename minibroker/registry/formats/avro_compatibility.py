"""Whether an Avro schema can read what was written with another one, by the rules of Java's SchemaCompatibility.

A place in a schema is a JSON pointer. Below a branch of a union, pointers begin anew, as they do in Java.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from minibroker.registry.formats.avro_types import AvroType, Field

# Which other types a primitive type reads.
PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}
Path = tuple[str, ...]

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


class Difference(NamedTuple):
    """A reason why a reader cannot read: its kind by Java's name, the place, and Java's message."""

    kind: str
    path: Path
    detail: str

    def __str__(self) -> str:
        path = "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in self.path)
        sentence = SENTENCES[self.kind].format(path=path, detail=self.detail)
        return f"{{errorType:'{self.kind}', description:'{sentence}', additionalInfo:'{self.detail}'}}"


class Comparison:
    """Compares pairs of types; those with names once, so that recursive schemas come to an end."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[Difference]] = {}

    def differences(self, reader: AvroType, writer: AvroType, path: Path = ()) -> list[Difference]:
        """Return what keeps the reader from reading; nothing if it can."""
        if reader.name is None or writer.name is None:
            return self._compared(reader, writer, path)
        pair = id(reader), id(writer)
        found = self._known.get(pair)
        if found is None:
            self._known[pair] = []  # a recursive pair is compatible unless something else differs
            found = self._known[pair] = self._compared(reader, writer, path)
        return found

    def _compared(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        if reader.java_name == writer.java_name:
            return self._same_kind(reader, writer, path)
        if writer.kind == "union":
            return [each for branch in writer.branches for each in self.differences(reader, branch)]
        if reader.kind == "union":
            if any(not self.differences(branch, writer) for branch in reader.branches):
                return []
            return [_missing_branch(writer, path)]
        if writer.kind in PROMOTIONS.get(reader.kind, ()):
            return []
        detail = f"reader type: {reader.java_name} not compatible with writer type: {writer.java_name}"
        return [Difference("TYPE_MISMATCH", path, detail)]

    def _same_kind(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        if reader.kind == "union":
            return [
                _missing_branch(branch, (*path, str(index)))
                for index, branch in enumerate(writer.branches)
                if self.differences(reader, branch)
            ]
        if reader.kind in ("array", "map"):
            part = "items" if reader.kind == "array" else "values"
            return self.differences(reader.element, writer.element, (*path, part))
        if reader.name is None:
            return []
        found = _names(reader, writer, path)
        if reader.kind == "fixed":
            return found + _sizes(reader, writer, path)
        if reader.kind == "enum":
            return found + _symbols(reader, writer, path)
        return found + self._fields(reader, writer, path)

    def _fields(self, reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
        found: list[Difference] = []
        written = {field.name: field for field in writer.fields}
        for index, field in enumerate(reader.fields):
            place = (*path, "fields", str(index))
            source = _source(field, written)
            if source is not None:
                found += self.differences(field.type, source.type, (*place, "type"))
            elif field.has_default:
                continue
            elif field.type.kind == "enum" and field.type.default is not None:
                found += self.differences(field.type, writer, (*place, "type"))
            else:
                found.append(Difference("READER_FIELD_MISSING_DEFAULT_VALUE", place, field.name))
        return found


def _source(field: Field, written: dict[str, Field]) -> Field | None:
    """Return the field of the writer that a field of the reader reads, by its name or an alias."""
    return next((written[name] for name in (field.name, *field.aliases) if name in written), None)


def _missing_branch(writer: AvroType, path: Path) -> Difference:
    return Difference("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {writer.java_name}")


def _names(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    assert reader.name is not None and writer.name is not None
    if reader.name.simple == writer.name.simple or writer.name in reader.aliases:
        return []
    return [Difference("NAME_MISMATCH", (*path, "name"), f"expected: {writer.full_name}")]


def _sizes(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    if reader.size == writer.size:
        return []
    return [Difference("FIXED_SIZE_MISMATCH", (*path, "size"), f"expected: {writer.size}, found: {reader.size}")]


def _symbols(reader: AvroType, writer: AvroType, path: Path) -> list[Difference]:
    missing = sorted({*writer.symbols} - {*reader.symbols})
    if not missing or reader.default is not None:
        return []
    return [Difference("MISSING_ENUM_SYMBOLS", (*path, "symbols"), f"[{', '.join(missing)}]")]
