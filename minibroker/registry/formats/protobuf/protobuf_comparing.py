"""Compares two Protobuf schemas as Confluent does: every change from what was written with to what is read with.

Messages are compared by their names, fields by their numbers. A type of another file is compared where it is used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from minibroker.registry.formats.comparing_budget import ComparingBudget, ComparisonTooLarge
from minibroker.registry.formats.java_order import unite_in_java_order
from minibroker.registry.formats.protobuf.proto_names import FoundType, NameScope, ProtoNames, is_enum
from minibroker.registry.formats.protobuf.protobuf_model import SCALARS, EnumType, Field, File, Message, Type

_COMPATIBLE: Final = """
MESSAGE_ADDED MESSAGE_MOVED ENUM_ADDED ENUM_REMOVED ENUM_CONST_ADDED ENUM_CONST_CHANGED
ENUM_CONST_REMOVED FIELD_ADDED FIELD_REMOVED FIELD_NAME_CHANGED FIELD_STRING_OR_BYTES_LABEL_CHANGED
ONEOF_ADDED ONEOF_REMOVED ONEOF_FIELD_ADDED ONEOF_FIELD_MOVED_TO_TOP_LEVEL
"""
COMPATIBLE: Final = frozenset(_COMPATIBLE.split())

_SENTENCES: Final = {
    "PACKAGE_CHANGED": "The package at '{path}' in the %s schema does not match the package in the %s schema",
    "MESSAGE_REMOVED": "The %s schema is missing a MESSAGE type at path '{path}' in the %s schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the %s schema does not match the %s schema",
    "FIELD_SCALAR_KIND_CHANGED": (
        "The kind of a SCALAR field at path '{path}' in the %s schema does not match its kind in the %s schema"
    ),
    "FIELD_NAMED_TYPE_CHANGED": (
        "The type of a MESSAGE field at path '{path}' in the %s schema does not match its type in the %s schema"
    ),
    "FIELD_NUMERIC_LABEL_CHANGED": (
        "The label for a NUMERIC field at path '{path}' in the %s schema does not match its label in the %s schema"
    ),
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the %s schema is missing in the %s schema",
    "REQUIRED_FIELD_REMOVED": "The %s schema is missing a required field at path: '{path}' in the %s schema",
    "ONEOF_FIELD_REMOVED": "The %s schema is missing a oneof field at path '{path}' in the %s schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": (
        "Multiple fields in the oneof at path '{path}' in the %s schema are outside a oneof in the %s schema"
    ),
    "FIELD_MOVED_TO_EXISTING_ONEOF": (
        "A field in the oneof at path '{path}' in the %s schema is outside an existing oneof in the %s schema"
    ),
}
MAXIMUM_DEPTH: Final = 60
STEPS_OF_A_PAIR: Final = 5  # of messages or fields, whose names have to be looked up
_REQUIRED: Final = ("", "REQUIRED_")
_KINDS: Final = {
    "int32": "number",
    "int64": "number",
    "uint32": "number",
    "uint64": "number",
    "bool": "number",
    "sint32": "signed",
    "sint64": "signed",
    "string": "bytes",
    "bytes": "bytes",
    "fixed32": "fixed32",
    "sfixed32": "fixed32",
    "fixed64": "fixed64",
    "sfixed64": "fixed64",
    "float": "float",
    "double": "double",
}


class ProtoChange(NamedTuple):
    """A change of a kind that Confluent names, at a place in the schema."""

    kind: str
    path: tuple[str, ...]

    @property
    def compatible(self) -> bool:
        """Whether a reader with the changed schema still reads what was written before."""
        return self.kind in COMPATIBLE

    @property
    def place(self) -> str:
        """The path as Confluent writes it."""
        return f"#/{'/'.join(self.path)}"

    def make_sentence(self) -> str:
        """Return the change as Confluent describes it, with "%s" for the reader's schema and then the writer's."""
        sentence = _SENTENCES.get(self.kind, "").format(path=self.place)
        return f'{{errorType:"{self.kind}", description:"{sentence}"}}'


class ComparedSide(NamedTuple):
    """One of the two schemas, and the place in it that is compared."""

    names: ProtoNames
    scope: NameScope

    def make_inner_side(self, name: str) -> ComparedSide:
        """Return the same schema with the scope within a message of the present one."""
        return ComparedSide(self.names, self.scope.make_inner_scope(name))


def compare_files(
    original: File,
    original_names: ProtoNames,
    update: File,
    updated_names: ProtoNames,
    budget: ComparingBudget | None = None,
) -> list[ProtoChange]:
    """Return all changes from `original` to `update`. Raises ComparisonTooLarge."""
    comparison = _FileComparison(budget or ComparingBudget())
    if original.package != update.package:
        comparison.changes.append(ProtoChange("PACKAGE_CHANGED", ()))
    sides = (
        ComparedSide(original_names, NameScope(original.package or "")),
        ComparedSide(updated_names, NameScope(update.package or "")),
    )
    comparison.compare_types(original.types, update.types, sides, ())
    return comparison.changes


class _FileComparison:
    """The changes found so far, and the messages that are being compared."""

    def __init__(self, budget: ComparingBudget) -> None:
        self.changes: list[ProtoChange] = []
        self._open: list[Message] = []
        self._budget = budget

    def _add_change(self, kind: str, path: tuple[str, ...]) -> None:
        self.changes.append(ProtoChange(kind, path))

    # Types

    def compare_types(
        self,
        original: Sequence[Type],
        update: Sequence[Type],
        compared_sides: tuple[ComparedSide, ComparedSide],
        path: tuple[str, ...],
    ) -> None:
        """Compare the types of a file, or of a message."""
        self._budget.spend_steps(len(original) + len(update))
        before, after = _index_messages(original), _index_messages(update)
        for name in unite_in_java_order(before, after):
            here = (*path, name)
            if name not in after:
                if not before[name][1].is_map_entry:
                    self._add_change("MESSAGE_REMOVED", here)
            elif name not in before:
                if not after[name][1].is_map_entry:
                    self._add_change("MESSAGE_ADDED", here)
            else:
                inner = compared_sides[0].make_inner_side(name), compared_sides[1].make_inner_side(name)
                self._compare_messages(before[name][1], after[name][1], inner, here)
                if before[name][0] != after[name][0]:
                    self._add_change("MESSAGE_MOVED", here)
        self._compare_enums(_index_enums(original), _index_enums(update), path)

    def _compare_enums(self, before: dict[str, EnumType], after: dict[str, EnumType], path: tuple[str, ...]) -> None:
        """Compare enums, whose changes are all compatible."""
        self._budget.spend_steps(sum(len(each.values) for each in (*before.values(), *after.values())))
        for name in unite_in_java_order(before, after):
            if name not in before or name not in after:
                self._add_change("ENUM_ADDED" if name not in before else "ENUM_REMOVED", (*path, name))
                continue
            earlier = {value.number: value.name for value in before[name].values}
            later = {value.number: value.name for value in after[name].values}
            for number in unite_in_java_order(earlier, later):
                here = (*path, name, str(number))
                if number not in earlier or number not in later:
                    self._add_change("ENUM_CONST_ADDED" if number not in earlier else "ENUM_CONST_REMOVED", here)
                elif earlier[number] != later[number]:
                    self._add_change("ENUM_CONST_CHANGED", here)

    # Messages

    def _compare_messages(
        self,
        original: Message,
        update: Message,
        compared_sides: tuple[ComparedSide, ComparedSide],
        path: tuple[str, ...],
    ) -> None:
        """Compare two messages; their fields only if they are not being compared already, further out."""
        if len(self._open) >= MAXIMUM_DEPTH:
            raise ComparisonTooLarge(
                f"The schemas are too large to be compared: they are nested more than {MAXIMUM_DEPTH} deep"
            )
        self._budget.spend_steps(
            STEPS_OF_A_PAIR * (1 + _count_steps_of_message(original) + _count_steps_of_message(update))
        )
        compares_fields = not any(each is original for each in self._open)
        self._open.append(original)
        if compares_fields:
            self._compare_one_ofs(original, update, path)
            self._compare_fields(original, update, compared_sides, path)
        self.compare_types(original.types, update.types, compared_sides, path)
        self._open.pop()

    def _compare_one_ofs(self, original: Message, update: Message, path: tuple[str, ...]) -> None:
        """Compare the oneofs: fields may share one only if they were in the same one before, or are new."""
        homes = _find_one_ofs_of_fields(original)
        for one_of in update.one_ofs:
            came_from = [(homes[field.number] or field.number) for field in one_of.fields if field.number in homes]
            if len({*came_from}) > 1:
                were_alone = sum(isinstance(each, int) for each in came_from)
                kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if were_alone > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
                self._add_change(kind, (*path, one_of.name))
        before, after = ({one_of.name for one_of in each.one_ofs} for each in (original, update))
        for name in sorted(before ^ after):
            self._add_change("ONEOF_ADDED" if name in after else "ONEOF_REMOVED", (*path, name))

    def _compare_fields(
        self,
        original: Message,
        update: Message,
        compared_sides: tuple[ComparedSide, ComparedSide],
        path: tuple[str, ...],
    ) -> None:
        """Compare all fields by their numbers, whichever oneofs they are in."""
        homes = _find_one_ofs_of_fields(original), _find_one_ofs_of_fields(update)
        before = {field.number: field for field in original.iterate_all_fields()}
        after = {field.number: field for field in update.iterate_all_fields()}
        gone = _find_removed_one_ofs(original, update, after.keys())
        for number in sorted(before.keys() | after.keys()):
            home = homes[1].get(number) if number in after else homes[0][number]
            here = (*path, *([home] if home else []), str(number))
            if number not in after:
                if home not in gone:
                    self._add_change(_choose_removal_kind(before[number], home), here)
            elif number not in before:
                self._add_change(_choose_addition_kind(after[number], home), here)
            else:
                if homes[0][number] and not home:
                    self._add_change("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", here)
                self._compare_field(before[number], after[number], compared_sides, here)

    # Fields

    def _compare_field(
        self, original: Field, update: Field, compared_sides: tuple[ComparedSide, ComparedSide], path: tuple[str, ...]
    ) -> None:
        """Compare two fields of the same number."""
        if original.name != update.name:
            self._add_change("FIELD_NAME_CHANGED", path)
        self._compare_types_and_labels(
            (original.type, update.type), (original.label, update.label), compared_sides, path
        )

    def _compare_types_and_labels(
        self,
        types: tuple[str, str],
        labels: tuple[str, str],
        compared_sides: tuple[ComparedSide, ComparedSide],
        path: tuple[str, ...],
    ) -> None:
        """Compare the types and labels of fields, or of the keys or values of maps."""
        entries = tuple(
            side.names.find_map_entry(name, side.scope) for side, name in zip(compared_sides, types, strict=True)
        )
        definitions = tuple(
            None if entry or name in SCALARS else side.names.find_type(name, side.scope)
            for side, name, entry in zip(compared_sides, types, entries, strict=True)
        )
        kinds = [
            "map" if entry else "scalar" if name in SCALARS or is_enum(each) else "message"
            for name, entry, each in zip(types, entries, definitions, strict=True)
        ]
        if kinds[0] != kinds[1]:
            self._add_change("FIELD_KIND_CHANGED", path)
        elif kinds[0] == "scalar":
            self._compare_scalar_types(types, labels, path)
        elif kinds[0] == "message":
            self._compare_named_types(types, (definitions[0], definitions[1]), compared_sides, path)
        elif entries[0] and entries[1]:
            for before, after in zip(entries[0], entries[1], strict=True):
                self._compare_types_and_labels((before, after), ("", ""), compared_sides, path)

    def _compare_scalar_types(self, types: tuple[str, str], labels: tuple[str, str], path: tuple[str, ...]) -> None:
        """Compare the kinds of scalars or enums, such as number and bytes, or else their labels, if both have one."""
        before, after = (_KINDS.get(name, "number") for name in types)
        if before != after:
            self._add_change("FIELD_SCALAR_KIND_CHANGED", path)
        elif all(labels) and labels[0] != labels[1]:
            text = before == "bytes"
            self._add_change("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if text else "FIELD_NUMERIC_LABEL_CHANGED", path)

    def _compare_named_types(
        self,
        types: tuple[str, str],
        resolved_types: tuple[FoundType | None, FoundType | None],
        compared_sides: tuple[ComparedSide, ComparedSide],
        path: tuple[str, ...],
    ) -> None:
        """Compare two messages by their names in their packages, and what is in them if they are declared elsewhere."""
        before, after = resolved_types
        if before is None or after is None:
            if types[0] != types[1]:
                self._add_change("FIELD_NAMED_TYPE_CHANGED", path)
            return
        local = [
            _remove_package_prefix(side.names.resolve_type_name(name, side.scope) or name, each.package)
            for side, name, each in zip(compared_sides, types, (before, after), strict=True)
        ]
        if local[0] != local[1]:
            self._add_change("FIELD_NAMED_TYPE_CHANGED", path)
            return
        if before.local and after.local or not isinstance(before.type, Message) or not isinstance(after.type, Message):
            return
        parts = tuple(local[0].split("."))
        inner = (
            ComparedSide(compared_sides[0].names, NameScope(before.package, parts)),
            ComparedSide(compared_sides[1].names, NameScope(after.package, parts)),
        )
        known = len(self.changes)
        self._compare_messages(before.type, after.type, inner, parts)
        if not all(change.compatible for change in self.changes[known:]):
            self._add_change("FIELD_NAMED_TYPE_CHANGED", path)


def _index_messages(types: Sequence[Type]) -> dict[str, tuple[int, Message]]:
    """Return messages by name, and where each stands among them."""
    messages = [each for each in types if isinstance(each, Message)]
    return {message.name: (index, message) for index, message in enumerate(messages)}


def _index_enums(types: Sequence[Type]) -> dict[str, EnumType]:
    """Return enums by name."""
    return {each.name: each for each in types if isinstance(each, EnumType)}


def _count_steps_of_message(message: Message) -> int:
    """Return how many steps it takes to compare a message without those in it, by its fields."""
    return len(message.fields) + sum(1 + len(one_of.fields) for one_of in message.one_ofs)


def _find_removed_one_ofs(original: Message, update: Message, kept_numbers: Collection[int]) -> set[str]:
    """Return the oneofs that are gone with all of their fields, which a reader survives."""
    names = {one_of.name for one_of in update.one_ofs}
    return {
        one_of.name
        for one_of in original.one_ofs
        if one_of.name not in names and not any(field.number in kept_numbers for field in one_of.fields)
    }


def _choose_removal_kind(field: Field, one_of: str | None) -> str:
    """Return the kind of change that a field was removed from a message, or from `one_of`."""
    return "ONEOF_FIELD_REMOVED" if one_of else f"{_REQUIRED[field.label == 'required']}FIELD_REMOVED"


def _choose_addition_kind(field: Field, one_of: str | None) -> str:
    """Return the kind of change that a field was added to a message, or to `one_of`."""
    return "ONEOF_FIELD_ADDED" if one_of else f"{_REQUIRED[field.label == 'required']}FIELD_ADDED"


def _find_one_ofs_of_fields(message: Message) -> dict[int, str]:
    """Return the oneof of each field by number, nothing for one that is in none."""
    homes = {field.number: "" for field in message.fields}
    return homes | {field.number: one_of.name for one_of in message.one_ofs for field in one_of.fields}


def _remove_package_prefix(full_name: str, package: str) -> str:
    """Return the name of a type without its package."""
    return full_name.removeprefix(f"{package}.") if package else full_name
