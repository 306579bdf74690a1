"""Writes .proto files as Confluent stores them, which ids depend on, and as it normalizes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final, TypeVar

from minibroker.registry.formats.protobuf.proto_names import NameScope, ProtoNames
from minibroker.registry.formats.protobuf.proto_options import convert_option_to_map, format_plain_number, merge_options
from minibroker.registry.formats.protobuf.protobuf_model import (
    MAXIMUM_NUMBER,
    SCALARS,
    EnumType,
    EnumValue,
    Field,
    File,
    Group,
    Message,
    Method,
    OneOf,
    Option,
    OptionKind,
    OptionWord,
    ProtoExtend,
    Range,
    Service,
    Type,
)
from minibroker.registry.formats.schema import InvalidSchema

_ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v"}
    | {sign: f"\\{sign}" for sign in "\\'\""}
)
Numbered = TypeVar("Numbered", Field, Group)
_AFTER_ALL_NUMBERS: Final = (1 << 31) - 1


def write_file(file: File, names: ProtoNames | None = None, *, extensions: bool = True) -> str:
    """Return the text of a file; with names, all is sorted, and types are named in full. Raises InvalidSchema then.

    Without `extensions`, there are none, nor ranges for them, nor options that are neither Protobuf's nor Confluent's.
    """
    return _ProtoWriter(names, NameScope(file.package or ""), extensions).write_file(file)


class _ProtoWriter:
    """Where names stand, and whether what is written is normalized: if names are known."""

    def __init__(self, names: ProtoNames | None, scope: NameScope, extensions: bool) -> None:
        self._names = names
        self._scope = scope
        self._extensions = extensions

    def _make_inner_writer(self, message: str) -> _ProtoWriter:
        """Return a writer for what is declared within a message."""
        return _ProtoWriter(self._names, self._scope.make_inner_scope(message), self._extensions)

    # Files, messages, enums

    def write_file(self, file: File) -> str:
        """Return the text of a file."""
        head = ""
        if file.syntax and not (self._names and file.syntax == "proto2"):
            head += f'syntax = "{file.syntax}";\n'
        if file.package is not None:
            head += f"package {file.package};\n"
        imports = [f'import "{name}";\n' for name in self._normalize_texts(file.imports)]
        imports += [f'import public "{name}";\n' for name in self._normalize_texts(file.public_imports)]
        blocks = [
            imports,
            self._write_option_statements(file.options),
            self._write_types(file.types),
            [self._write_extend(each) for each in self._group_extends(file.extends)],
            [self._write_service(each) for each in file.services],
        ]
        return head + "".join("\n" + "".join(block) for block in blocks if block)

    def _write_types(self, types: Iterable[Type]) -> list[str]:
        """Return the texts of messages, and then of enums."""
        types = list(types)
        messages = [each for each in types if isinstance(each, Message) and not (self._names and each.is_map_entry)]
        return [self._write_message(each) for each in messages] + [
            self._write_enum(each) for each in types if isinstance(each, EnumType)
        ]

    def _write_message(self, message: Message) -> str:
        """Return the text of a message."""
        inner = self._make_inner_writer(message.name)
        blocks = [
            inner._write_ranges("reserved", message.reserved),
            inner._write_option_statements(message.options),
            [inner._write_field(each) for each in inner._sort_by_number(message.fields)],
            [inner._write_one_of(each) for each in inner._order_one_ofs(message.one_ofs)],
            [inner._write_group(each) for each in inner._sort_by_number(message.groups)],
            inner._write_ranges("extensions", message.extensions if self._extensions else []),
            [inner._write_extend(each) for each in inner._group_extends(message.extends)],
            inner._write_types(message.types),
        ]
        return _write_block(f"message {message.name}", blocks)

    def _write_enum(self, enum: EnumType) -> str:
        """Return the text of an enum: its options and values, and then what is reserved."""
        inner = self._make_inner_writer(enum.name)
        values = sorted(enum.values, key=lambda each: (each.number, each.name)) if self._names else enum.values
        lines = [*inner._write_ranges("reserved", enum.reserved), *inner._write_option_statements(enum.options)]
        return _write_block(f"enum {enum.name}", [lines + [inner._write_enum_value(each) for each in values]])

    def _write_enum_value(self, value: EnumValue) -> str:
        """Return a value of an enum."""
        return f"{value.name} = {value.number}{self._write_bracket_options(value.options)};\n"

    def _write_one_of(self, one_of: OneOf) -> str:
        """Return the text of a oneof, with its fields in their order."""
        blocks = [
            self._write_option_statements(one_of.options),
            [self._write_field(each) for each in one_of.fields],
            [self._write_group(each) for each in self._sort_by_number(one_of.groups)],
        ]
        return _write_block(f"oneof {one_of.name}", blocks)

    def _write_group(self, group: Group) -> str:
        """Return the text of a group."""
        label = f"{group.label} " if group.label else ""
        fields = [self._write_field(each) for each in self._sort_by_number(group.fields)]
        return _write_block(f"{label}group {group.name} = {group.number}", [fields])

    def _write_extend(self, extend: ProtoExtend) -> str:
        """Return the text of an extension."""
        return _write_block(
            f"extend {extend.name}", [[self._write_field(each) for each in self._sort_by_number(extend.fields)]]
        )

    def _write_service(self, service: Service) -> str:
        """Return the text of a service."""
        blocks = [
            self._write_option_statements(service.options),
            [self._write_method(each) for each in service.methods],
        ]
        return _write_block(f"service {service.name}", blocks)

    def _write_method(self, method: Method) -> str:
        """Return the text of a method."""
        request = ("stream " if method.request_streams else "") + self._get_full_name(method.request)
        response = ("stream " if method.response_streams else "") + self._get_full_name(method.response)
        options = _indent_lines("".join(self._write_option_statements(method.options)))
        ending = f" {{\n{options}}}" if options else ""
        return f"rpc {method.name} ({request}) returns ({response}){ending};\n"

    def _write_field(self, field: Field) -> str:
        """Return the text of a field."""
        label, type_name = field.label, field.type
        if self._names is not None:
            label, type_name = self._normalize_label_and_type(label, type_name, self._names)
        options = list(field.options)
        if field.default is not None:
            options.append(Option("default", _find_default_kind(type_name), field.default))
        if field.json_name is not None:
            options.append(Option("json_name", OptionKind.TEXT, field.json_name))
        prefix = f"{label} " if label else ""
        return f"{prefix}{type_name} {field.name} = {field.number}{self._write_bracket_options(options)};\n"

    def _write_ranges(self, keyword: str, statements: Sequence[Sequence[Range | str]]) -> list[str]:
        """Return the texts of statements `reserved` or `extensions`, whichever `keyword` says."""
        if self._names is not None:
            values = [value for statement in statements for value in statement]
            values.sort(
                key=lambda value: (
                    _make_sort_key(value),
                    "" if keyword == "extensions" else _make_second_sort_key(value),
                )
            )
            statements = [[value] for value in values]
        return [
            f"{keyword} {', '.join(_write_range(value, self._names is not None) for value in statement)};\n"
            for statement in statements
        ]

    # Normal forms

    def _normalize_texts(self, texts: Sequence[str]) -> Sequence[str]:
        """Return texts; in normal form sorted, and each once."""
        return sorted(set(texts)) if self._names else texts

    def _sort_by_number(self, parts: Sequence[Numbered]) -> Sequence[Numbered]:
        """Return values or fields; in normal form sorted by their numbers."""
        return sorted(parts, key=lambda part: part.number) if self._names else parts

    def _order_one_ofs(self, one_ofs: Sequence[OneOf]) -> Sequence[OneOf]:
        """Return oneofs by the number of their first field; in normal form those without fields are left out."""
        if self._names is None:
            return one_ofs
        ordered = [
            OneOf(each.name, sorted(each.fields, key=lambda field: field.number), each.groups, each.options)
            for each in one_ofs
            if each.fields
        ]
        return sorted(ordered, key=lambda each: each.fields[0].number)

    def _group_extends(self, extends: Sequence[ProtoExtend]) -> Sequence[ProtoExtend]:
        """Return extensions; in normal form one for each message that is extended."""
        if self._names is None or not self._extensions:
            return extends if self._extensions else []
        fields: dict[str, list[Field]] = {}
        for extend in extends:
            for field in extend.fields:
                fields.setdefault(self._get_full_name(extend.name), []).append(field)
        return [ProtoExtend(name, of_name) for name, of_name in fields.items()]

    def _get_full_name(self, type_name: str) -> str:
        """Return the full name of a type in normal form. Raises InvalidSchema if there is no such type."""
        if self._names is None:
            return type_name
        full = self._names.resolve_type_name(type_name, self._scope)
        if full is None:
            raise InvalidSchema(f"Could not resolve type: {type_name}")
        return f".{full}"

    def _normalize_label_and_type(self, label: str, type_name: str, names: ProtoNames) -> tuple[str, str]:
        """Return the label and type of a field in normal form."""
        if type_name in SCALARS:
            return label, type_name
        if not type_name.startswith("map<"):
            type_name = self._get_full_name(type_name)
        entry = names.find_map_entry(type_name, self._scope)
        if entry is None:
            return label, type_name
        key, value = entry
        full = names.resolve_type_name(value, self._scope)
        return "", f"map<{key}, {value if full is None else f'.{full}'}>"

    # Options

    def _write_option_statements(self, options: Sequence[Option]) -> list[str]:
        """Return the texts of options as statements."""
        return [f"option {self._write_option(each)};\n" for each in self._sort_options(options)]

    def _write_bracket_options(self, options: Sequence[Option]) -> str:
        """Return the text of options in brackets, empty without options."""
        normal = self._sort_options(options)
        return f" {self._write_list(normal)}" if normal else ""

    def _sort_options(self, options: Sequence[Option]) -> Sequence[Option]:
        """Return options; in normal form sorted, with full names, and merged if the option is not repeated."""
        if not self._extensions:
            options = [each for each in options if not each.custom or each.name.startswith("confluent.")]
        if self._names is None or not options:
            return options
        by_name: dict[str, list[Option]] = {}
        for option in sorted(map(self._qualify_option, options), key=lambda each: each.name):
            by_name.setdefault(option.name, []).append(option)
        result: list[Option] = []
        for name, of_name in by_name.items():
            extension = self._names.extensions.get(name)
            merges = extension is not None and extension.label != "repeated"
            result += [reduce(merge_options, of_name)] if merges else of_name
        return result

    def _qualify_option(self, option: Option) -> Option:
        """Return an option with its full name; `(name).field = value` becomes `(name) = {field: value}`."""
        assert self._names is not None
        full = self._names.resolve_extension(option.name, self._scope) if option.custom else None
        return option if full is None else convert_option_to_map(Option(full, option.kind, option.value, option.custom))

    def _write_option(self, option: Option) -> str:
        """Return the text of an option without the keyword."""
        name = f"({option.name})" if option.custom else option.name
        if option.kind is OptionKind.OPTION:
            return f"{name}.{self._write_option(option.value)}"
        if option.kind is OptionKind.TEXT:
            return f"{name} = {_quote_text(option.value)}"
        if option.kind is OptionKind.MAP:
            return f"{name} = {self._write_map(option.value)}"
        if option.kind is OptionKind.LIST:
            return f"{name} = {self._write_list(option.value)}"
        return f"{name} = {self._write_number(option.value) if option.kind is OptionKind.NUMBER else option.value}"

    def _write_value(self, value: Any) -> str:
        """Return the text of a value in a map or list."""
        if isinstance(value, Option):
            return self._write_option(value)
        if isinstance(value, OptionWord):
            return self._write_number(value.text) if value.kind is OptionKind.NUMBER else value.text
        if isinstance(value, dict):
            return self._write_map(value)
        if isinstance(value, list):
            if self._names is not None and len(value) == 1:
                return self._write_value(value[0])
            return f"[\n{self._write_lines([self._write_value(each) for each in value])}]"
        return _quote_text(value)

    def _write_map(self, values: dict[str, Any]) -> str:
        """Return the text of an option's map."""
        if self._names is not None:
            kept = {self._write_key(name): value for name, value in reversed(values.items()) if value != []}
            values = dict(sorted(kept.items()))
        return f"{{\n{self._write_lines([f'{name}: {self._write_value(value)}' for name, value in values.items()])}}}"

    def _write_key(self, name: str) -> str:
        """Return the text of a map's key; in normal form that of an extension is its full name."""
        assert self._names is not None
        if not name.startswith("["):
            return name
        full = self._names.resolve_extension(name[1:-1], self._scope)
        return name if full is None else f"[{full}]"

    def _write_list(self, values: Sequence[Any]) -> str:
        """Return the text of an option's list, on one line if it has one value."""
        if len(values) == 1:
            return f"[{self._write_value(values[0])}]"
        return f"[\n{self._write_lines([self._write_value(each) for each in values])}]"

    def _write_lines(self, values: Sequence[str]) -> str:
        """Return values as lines, indented and with commas between them."""
        return "".join(
            _indent_lines(value + ("," if index < len(values) - 1 else "")) for index, value in enumerate(values)
        )

    def _write_number(self, text: str) -> str:
        """Return the text of a number; in normal form as Java's DecimalFormat writes it."""
        return text if self._names is None else format_plain_number(text)


def _write_block(head: str, blocks: Iterable[Sequence[str]]) -> str:
    """Return a declaration with its parts in braces."""
    return f"{head} {{{''.join(chr(10) + ''.join(map(_indent_lines, block)) for block in blocks if block)}}}\n"


def _indent_lines(text: str) -> str:
    """Return the lines of a text with two more spaces, empty lines too."""
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n")) if text else ""


def _quote_text(text: Any) -> str:
    return f'"{str(text).translate(_ESCAPES)}"'


def _make_sort_key(value: Range | str) -> int:
    """Return what reserved values are sorted by: names come after all numbers."""
    if isinstance(value, tuple):
        return value[0]
    return value if isinstance(value, int) else _AFTER_ALL_NUMBERS


def _make_second_sort_key(value: Range | str) -> str:
    """Return what values of the same start are sorted by."""
    return f"{value[0]}..{value[1]}" if isinstance(value, tuple) else str(value)


def _write_range(value: Range | str, is_normalized: bool) -> str:
    """Return the text of a reserved number, range or name."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int):
        return str(value)
    start, end = value
    if is_normalized and start == end:
        return str(start)
    return f"{start} to {end if end < MAXIMUM_NUMBER else 'max'}"


def _find_default_kind(type_name: str) -> OptionKind:
    """Return the kind of a default value of a type."""
    if type_name in ("bool", "string"):
        return OptionKind.BOOLEAN if type_name == "bool" else OptionKind.TEXT
    return OptionKind.NUMBER if type_name in SCALARS else OptionKind.NAME
