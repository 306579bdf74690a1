"""Protobuf for the registry: canonical texts, imports, descriptors, and compatibility as Confluent has it.

A schema is the text of a .proto file, or a FileDescriptorProto in base64. The library protobuf checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from minibroker.registry.formats.comparing_budget import ComparingBudget, describe_changes
from minibroker.registry.formats.protobuf.descriptors import (
    encode_base64_descriptor,
    find_well_known,
    make_descriptor,
    parse_base64_descriptor,
)
from minibroker.registry.formats.protobuf.proto_names import CollectedNames, ProtoNames, collect_names
from minibroker.registry.formats.protobuf.proto_reading import read_file
from minibroker.registry.formats.protobuf.proto_writing import write_file
from minibroker.registry.formats.protobuf.protobuf_comparing import compare_files
from minibroker.registry.formats.protobuf.protobuf_model import File
from minibroker.registry.formats.schema import InvalidSchema

MAXIMUM_FILES = 1000  # that a schema may import, directly or not
MAXIMUM_PACKAGE_PARTS = 100
OWN_NAME = "default"  # what Confluent calls the file in its descriptor


@dataclass(frozen=True, eq=False)
class ProtobufSchema:
    """A Protobuf schema: its file, and those that it imports, by name."""

    canonical: str
    file: File
    imported: Mapping[str, File]

    def get_normalized_text(self) -> str:
        """Return the canonical text in order, with types named in full. Raises InvalidSchema if one is not known."""
        return write_file(self.file, self.names)

    def get_comparable_text(self) -> str:
        """Return the normalized text, or the canonical one if it refers to what is not there."""
        try:
            return self.get_normalized_text()
        except InvalidSchema:
            return self.canonical

    def list_field_names(self) -> set[str]:
        """Return the names of the fields of the messages that are not within another one."""
        return {field.name for message in self.file.list_messages() for field in message.iterate_all_fields()}

    def get_text_in_format(self, format: str) -> str:
        """Return the text in Confluent's format "serialized" (a descriptor in base64) or "ignore_extensions"."""
        if format == "serialized":
            return encode_base64_descriptor(make_descriptor(OWN_NAME, self.file, self.names, self.imported))
        return write_file(self.file, extensions=False) if format == "ignore_extensions" else self.canonical

    def check_with_protobuf(self) -> None:
        """Raise InvalidSchema if protobuf does not accept the schema."""
        try:
            assert self.descriptor.name == OWN_NAME
        except InvalidSchema:
            self.get_normalized_text()  # if a type is not known, Confluent's words say so
            raise

    @cached_property
    def names(self) -> ProtoNames:
        """The types and extensions of the file and of those that it imports."""
        return ProtoNames(self.file, collect_names(self.imported.values()))

    @cached_property
    def descriptor(self) -> FileDescriptor:
        """The descriptor of the file, as protobuf compiled it. Raises InvalidSchema."""
        pool = DescriptorPool()
        added: dict[str, bool] = {}
        known = collect_names(self.imported.values())
        for name, file in [*self.imported.items(), (OWN_NAME, self.file)]:
            self._add_file(pool, name, file, known, added)
        return pool.FindFileByName(OWN_NAME)

    def _add_file(
        self, pool: DescriptorPool, name: str, file: File, known_names: CollectedNames, added: dict[str, bool]
    ) -> None:
        """Add a file to a pool after those that it imports. Raises InvalidSchema."""
        if name in added:
            if not added[name]:
                raise InvalidSchema(f"{name} imports itself")
            return
        added[name] = False
        for imported in (*file.imports, *file.public_imports):
            if imported in self.imported:
                self._add_file(pool, imported, self.imported[imported], known_names, added)
        try:
            pool.AddSerializedFile(
                make_descriptor(name, file, ProtoNames(file, known_names), self.imported).SerializeToString()
            )
        except TypeError as error:  # what the library raises for a file that is not valid
            raise InvalidSchema(str(error)) from None
        added[name] = True


def parse(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """Parse a schema, with the texts of those that it imports by their names. Raises InvalidSchema."""
    if len(references) > MAXIMUM_FILES:
        raise InvalidSchema(f"the schema has more than {MAXIMUM_FILES} references")
    file = _parse_file(text)
    imported = {name: _parse_file(reference) for name, reference in references.items()}
    imported |= _find_well_known_imports(file, imported)
    schema = ProtobufSchema(write_file(file), file, imported)
    schema.check_with_protobuf()
    return schema


def list_incompatibilities(
    reader: ProtobufSchema, writer: ProtobufSchema, budget: ComparingBudget | None = None
) -> list[str]:
    """Return why `reader` does not read what was written with `writer`, in Confluent's words; nothing if it does.

    Raises ComparisonTooLarge.
    """
    changes = compare_files(writer.file, writer.names, reader.file, reader.names, budget)
    found = [change for change in changes if not change.compatible]
    return describe_changes((change.make_sentence() for change in found), len(found))


def _parse_file(text: str) -> File:
    """Return the file of a text, or of a descriptor in base64. Raises InvalidSchema."""
    try:
        file: File | None = read_file(text)
    except InvalidSchema as error:
        file = parse_base64_descriptor(text)
        if file is None:
            raise InvalidSchema(f"Could not parse Protobuf - {error}") from None
    assert file is not None
    if (file.package or "").count(".") >= MAXIMUM_PACKAGE_PARTS:  # each is tried for each name
        raise InvalidSchema(f"the package has more than {MAXIMUM_PACKAGE_PARTS} parts")
    return file


def _find_well_known_imports(file: File, imported: Mapping[str, File]) -> dict[str, File]:
    """Return the files that are imported, directly or not, and that Confluent's registry knows by itself."""
    known: dict[str, File] = {}
    pending = [file, *imported.values()]
    while pending:
        for name in _iterate_imports(pending.pop()):
            if name in imported or name in known:
                continue
            known_file = find_well_known(name)
            if known_file is not None:
                known[name] = known_file if isinstance(known_file, File) else read_file(known_file)
                pending.append(known[name])
    return known


def _iterate_imports(file: File) -> Iterator[str]:
    """Yield the names of the files that a file imports."""
    yield from file.imports
    yield from file.public_imports
