"""Reads .proto files, as Square's Wire does, whose texts Confluent stores.

Why not a library: of those on PyPI, proto-schema-parser takes milliseconds a line and brings ANTLR, and protobuf itself
reads only compiled descriptors; and neither keeps what the canonical text needs, such as the kinds of options.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from minibroker.registry.formats.protobuf.protobuf_model import (
    MAXIMUM_NUMBER,
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
)
from minibroker.registry.formats.protobuf.words import ProtoWords
from minibroker.registry.formats.schema import InvalidSchema

MAXIMUM_CHARACTERS: Final = 1 << 20
LABELS: Final = ("required", "optional", "repeated")


def read_file(text: str) -> File:
    """Return what a .proto file declares. Raises InvalidSchema."""
    if len(text) > MAXIMUM_CHARACTERS:
        raise InvalidSchema(f"the schema has more than {MAXIMUM_CHARACTERS} characters")
    return _ProtoReader(text).read_file()


class _ProtoReader(ProtoWords):
    """Reads declarations."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._syntax: str | None = None
        self._declared: set[str] = set()  # messages and enums that are in no other one

    # Declarations

    def read_file(self) -> File:
        """Read the whole file."""
        file = File()
        first = True
        while True:
            self.skip_spaces_and_comments()
            if self.place >= len(self.text):
                return file
            if not self.skip_character_if_next(";"):
                self._read_declaration(file, self.read_word(), first)
            first = False

    def _read_declaration(self, file: File, word: str, first: bool) -> None:
        """Read a declaration that begins with a word."""
        if word == "syntax":
            self.require_character("=")
            if not first:
                self.raise_invalid_schema("'syntax' element must be the first declaration in a file")
            self._syntax = file.syntax = self.read_quoted_text()
            if file.syntax not in ("proto2", "proto3"):
                self.raise_invalid_schema(f"unknown syntax: {file.syntax}")
            self.require_character(";")
        elif word == "package":
            file.package = self.read_name()
            self.require_character(";")
        elif word == "import":
            self._read_import(file)
        elif word == "option":
            file.options.append(self._read_option_statement())
        elif word in ("message", "enum"):
            declared = self._read_message() if word == "message" else self._read_enum()
            if declared.name in self._declared:
                self.raise_invalid_schema(f"{declared.name} is already defined")
            self._declared.add(declared.name)
            file.types.append(declared)
        elif word == "extend":
            file.extends.append(self._read_extend())
        elif word == "service":
            file.services.append(self._read_service())
        else:
            self.raise_invalid_schema(f"unexpected label: {word}")

    def _read_block(self) -> Iterator[str]:
        """Yield the first word of each declaration in braces; the caller reads the rest before the next one."""
        self.require_character("{")
        while not self.skip_character_if_next("}"):
            if not self.skip_character_if_next(";"):
                yield self.read_word()

    def _read_import(self, file: File) -> None:
        """Read an import."""
        imports = file.imports
        if self.peek_character() not in "\"'":
            word = self.read_word()
            if word not in ("public", "weak"):
                self.raise_invalid_schema("expected quoted string")
            imports = file.public_imports if word == "public" else []
        imports.append(self.read_quoted_text())
        self.require_character(";")

    def _read_message(self) -> Message:
        """Read a message after its keyword."""
        message = Message(self.read_name())
        self.count_nesting_level()
        for word in self._read_block():
            self._read_member(message, word)
        self.depth -= 1
        return message

    def _read_member(self, message: Message, word: str) -> None:
        """Read a part of a message that begins with a word."""
        if word == "option":
            message.options.append(self._read_option_statement())
        elif word == "reserved":
            message.reserved.append(self._read_reserved())
        elif word == "message":
            message.types.append(self._read_message())
        elif word == "enum":
            message.types.append(self._read_enum())
        elif word == "extend":
            message.extends.append(self._read_extend())
        elif word == "oneof":
            message.one_ofs.append(self._read_one_of())
        elif word == "extensions":
            message.extensions.append(self._read_extensions())
        else:
            declared = self._read_field_or_group(word)
            if isinstance(declared, Group):
                message.groups.append(declared)
            else:
                message.fields.append(declared)

    def _read_field_or_group(self, word: str) -> Field | Group:
        """Read a field or group that begins with a word: its label, or its type."""
        label = word if word in LABELS else ""
        if label == "required" and self._syntax == "proto3":
            self.raise_invalid_schema("'required' label forbidden in proto3 field declarations")
        if not label and self._syntax != "proto3" and not (word == "map" and self.peek_character() == "<"):
            self.raise_invalid_schema(f"unexpected label: {word}")
        type_name = self.read_data_type(self.read_word() if label else word)
        if label and type_name.startswith("map<"):
            self.raise_invalid_schema("'map' type cannot have label")
        return self._read_group(label) if type_name == "group" else self._read_field(label, type_name)

    def _read_field(self, label: str, type_name: str) -> Field:
        """Read a field after its type."""
        name = self.read_name()
        if name[0].isdigit():
            self.raise_invalid_schema("field and constant names cannot start with a digit")
        self.require_character("=")
        number = self.read_number()
        options = self._read_options()
        self.require_character(";")
        values = {option.name: str(option.value) for option in options if option.name in ("default", "json_name")}
        return Field(
            label,
            type_name,
            name,
            number,
            values.get("default"),
            values.get("json_name"),
            [option for option in options if option.name not in values],
        )

    def _read_group(self, label: str) -> Group:
        """Read a group after its keyword."""
        group = Group(label, self.read_word(), 0)
        self.require_character("=")
        group.number = self.read_number()
        self.count_nesting_level()
        self.require_character("{")
        while not self.skip_character_if_next("}"):
            declared = self._read_field_or_group(self.read_word())
            if isinstance(declared, Group):
                self.raise_invalid_schema("expected field declaration")
            group.fields.append(declared)
        self.depth -= 1
        return group

    def _read_one_of(self) -> OneOf:
        """Read a oneof after its keyword."""
        one_of = OneOf(self.read_name())
        self.require_character("{")
        while not self.skip_character_if_next("}"):
            word = self.read_data_type(self.read_word())
            if word == "group":
                one_of.groups.append(self._read_group(""))
            elif word == "option":
                one_of.options.append(self._read_option_statement())
            else:
                one_of.fields.append(self._read_field("", word))
        return one_of

    def _read_enum(self) -> EnumType:
        """Read an enum after its keyword."""
        enum = EnumType(self.read_name())
        for word in self._read_block():
            if word == "option":
                enum.options.append(self._read_option_statement())
            elif word == "reserved":
                enum.reserved.append(self._read_reserved())
            else:
                if word[0].isdigit():
                    self.raise_invalid_schema("field and constant names cannot start with a digit")
                self.require_character("=")
                number = self.read_number()
                enum.values.append(EnumValue(word, number, self._read_options()))
                self.require_character(";")
        return enum

    def _read_extend(self) -> ProtoExtend:
        """Read an extension of another message after its keyword."""
        extend = ProtoExtend(self.read_name())
        for word in self._read_block():
            declared = self._read_field_or_group(word)
            if isinstance(declared, Field):
                extend.fields.append(declared)
        return extend

    def _read_service(self) -> Service:
        """Read a service after its keyword."""
        service = Service(self.read_name())
        for word in self._read_block():
            if word == "option":
                service.options.append(self._read_option_statement())
            elif word == "rpc":
                service.methods.append(self._read_method())
            else:
                self.raise_invalid_schema(f"unexpected label: {word}")
        return service

    def _read_method(self) -> Method:
        """Read a method after its keyword."""
        name = self.read_name()
        request, request_streams = self._read_type_of_method()
        if self.read_word() != "returns":
            self.raise_invalid_schema("expected 'returns'")
        response, response_streams = self._read_type_of_method()
        method = Method(name, request, response, request_streams, response_streams)
        if self.peek_character() != "{":
            self.require_character(";")
            return method
        for word in self._read_block():
            if word != "option":
                self.raise_invalid_schema("expected an option")
            method.options.append(self._read_option_statement())
        return method

    def _read_type_of_method(self) -> tuple[str, bool]:
        """Return the type of what a method takes or gives, and whether it is a stream."""
        self.require_character("(")
        word = self.read_word()
        streams = word == "stream" and self.peek_character() != ")"
        type_name = self.read_data_type(self.read_word() if streams else word)
        self.require_character(")")
        return type_name, streams

    def _read_reserved(self) -> list[Range | str]:
        """Read reserved numbers and names after their keyword."""
        values: list[Range | str] = []
        while True:
            values.append(self.read_quoted_text() if self.peek_character() in "\"'" else self._read_range())
            sign = self.take_character()
            if sign == ";":
                return values
            if sign != ",":
                self.raise_invalid_schema("expected ',' or ';'")

    def _read_extensions(self) -> list[Range]:
        """Read ranges for extensions after their keyword."""
        values: list[Range] = []
        while True:
            values.append(self._read_range())
            if self.peek_character() == "[":
                self._read_options()
                self.require_character(";")
                return values
            sign = self.take_character()
            if sign == ";":
                return values
            if sign != ",":
                self.raise_invalid_schema("expected ',' or ';'")

    def _read_range(self) -> Range:
        """Return a number, or a range of numbers."""
        start = self.read_number()
        if self.peek_character() in ",;[":
            return start
        if self.read_word() != "to":
            self.raise_invalid_schema("expected ',', ';', or 'to'")
        if self.peek_character() == "m":
            if self.read_word() != "max":
                self.raise_invalid_schema("expected an integer or 'max'")
            return start, MAXIMUM_NUMBER
        return start, self.read_number()

    # Options

    def _read_option_statement(self) -> Option:
        """Read an option after its keyword."""
        option = self._read_option("=")
        self.require_character(";")
        return option

    def _read_options(self) -> list[Option]:
        """Return the options in brackets, if any come next."""
        options: list[Option] = []
        if not self.skip_character_if_next("["):
            return options
        while True:
            options.append(self._read_option("="))
            if self.skip_character_if_next("]"):
                return options
            if not self.skip_character_if_next(","):
                self.raise_invalid_schema("Expected ',' or ']'")

    def _read_option(self, separator: str) -> Option:
        """Return an option: a name, a separator, a value."""
        opening = self.peek_character()
        name = self.read_name()
        if opening == "[":
            name = f"[{name}]"
        inner = self.read_name().split(".") if self.skip_character_if_next(".") else []
        if not (separator == ":" and self.peek_character() == "{"):  # which may be left out before a map
            word = self.take_character()
            if word != separator:
                self.raise_invalid_schema(f"expected '{separator}' in option")
        kind, value = self._read_value()
        for each in reversed(inner):
            kind, value = OptionKind.OPTION, Option(each, kind, value)
        return Option(name, kind, value, opening == "(")

    def _read_value(self) -> tuple[OptionKind, Any]:
        """Return a value of an option, and its kind."""
        sign = self.peek_character()
        if sign == "{":
            return OptionKind.MAP, self._read_map()
        if sign == "[":
            return OptionKind.LIST, self._read_list()
        if sign in "\"'":
            return OptionKind.TEXT, self.read_quoted_text()
        word = self.read_word()
        if sign.isdigit() or sign == "-":
            return OptionKind.NUMBER, word
        return (OptionKind.BOOLEAN if word in ("true", "false") else OptionKind.NAME), word

    def _read_map(self) -> dict[str, Any]:
        """Return a map of an option; values of the same name are a list."""
        self.count_nesting_level()
        self.require_character("{")
        values: dict[str, Any] = {}
        while not self.skip_character_if_next("}"):
            option = self._read_option(":")
            if isinstance(option.value, Option):
                nested = values.setdefault(option.name, {})
                if not isinstance(nested, dict):
                    self.raise_invalid_schema(f"{option.name} has values of two kinds")
                nested[option.value.name] = _mark_kind_of_value(option.value.kind, option.value.value)
            else:
                _add_value(values, option.name, _mark_kind_of_value(option.kind, option.value))
            if not self.skip_character_if_next(","):
                self.skip_character_if_next(";")
        self.depth -= 1
        return values

    def _read_list(self) -> list[Any]:
        """Return a list of an option."""
        self.count_nesting_level()
        self.require_character("[")
        values: list[Any] = []
        while not self.skip_character_if_next("]"):
            values.append(_mark_kind_of_value(*self._read_value()))
            if not self.skip_character_if_next(",") and self.peek_character() != "]":
                self.raise_invalid_schema("expected ',' or ']'")
        self.depth -= 1
        return values


def _mark_kind_of_value(kind: OptionKind, value: Any) -> Any:
    """Return a value of a map or list; a number, boolean or name as OptionWord, as its text looks like a string."""
    return OptionWord(kind, value) if kind in (OptionKind.BOOLEAN, OptionKind.NUMBER, OptionKind.NAME) else value


def _add_value(values: dict[str, Any], name: str, value: Any) -> None:
    """Add a value to a map; several of the same name become a list."""
    if name not in values:
        values[name] = value
        return
    if not isinstance(values[name], list):
        values[name] = [values[name]]
    values[name] += value if isinstance(value, list) else [value]
