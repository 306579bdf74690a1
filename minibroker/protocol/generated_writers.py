"""Generates the Python that writes one version of one message: straight code, nested like the message.

The generated function is `write(message, out)`. Neighbouring fields of fixed size, with the length that follows them,
are packed by one struct call. Regions of records are put in with `out.put_region`, not copied. `source.py` compiles
the text into a function.

With `keeps_tags`, the unknown tagged fields that a reader has kept with a struct are written, too.

With `in_steps`, for long responses, it is `write(message, out, limit)`: a generator that yields after every some
hundred items, and returns the long arrays. It raises if the response grows beyond the limit.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from minibroker.protocol import primitives
from minibroker.protocol.fields import Field, FieldType, get_default_factory, get_default_value
from minibroker.protocol.layout import FieldInVersion, make_struct_layout
from minibroker.protocol.source import (
    FEW,
    UNKNOWN_TAGS,
    WRITTEN_ITEMS,
    FunctionSource,
    choose_free_name,
    convert_to_snake_case,
)

TAGS_END = 1 << 35  # no varint is as large

_NAMES: dict[str, Any] = {
    "pack": pack,
    "ONE_BYTE": primitives.ONE_BYTE,
    "varint": primitives.encode_unsigned_varint,
    "string_length": primitives.encode_string_length,
    "unknown_tags_between": primitives.encode_unknown_tags_between,
    "AnswerTooLarge": primitives.AnswerTooLarge,
    "BYTES": (bytes, bytearray, memoryview),
}


def generate_writer(
    struct: type, version: int, flexible: bool, *, in_steps: bool = False, keeps_tags: bool = False
) -> FunctionSource:
    """Generate the function that writes a version of a struct, at once or in steps."""
    source = FunctionSource(dict(_NAMES))
    with source.add_block_with_head(f"def write(message, out{', limit' if in_steps else ''}):"):
        if in_steps:
            source.add_line(f"left, long_arrays = {WRITTEN_ITEMS}, []")
        writer = _WriterGenerator(source, version, flexible, in_steps, keeps_tags)
        writer.generate_struct_lines(struct, "message", ())
        writer.generate_line_of_collected_fields()
        if in_steps:
            with source.add_block_with_head("if limit < 0:"):  # never true: the yield makes every function a generator
                source.add_line("yield")
            source.add_line("return long_arrays")
        elif len(source.lines) == 1:
            source.add_line("pass")
    return source


class _WriterGenerator:
    """Adds the lines for each field. `_run` collects fixed-size fields for a common struct call.

    `taken_names` are the names of the variables that enclosing loops still need.
    """

    def __init__(self, source: FunctionSource, version: int, flexible: bool, in_steps: bool, keeps_tags: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.keeps_tags = keeps_tags
        self.out = "out"
        self._run: list[tuple[str, str]] = []  # expression, letter

    # --- structs ---

    def generate_struct_lines(self, struct: type, name: str, taken_names: tuple[str, ...]) -> None:
        """Add the lines that write the struct in a variable."""
        shape = make_struct_layout(struct, self.version, self.flexible)
        taken_names = (*taken_names, name)
        for place in shape.body:
            with self.source.enter_field(place.name):
                self._generate_field_lines(place, f"{name}.{place.name}", taken_names)
        if self.flexible and not shape.tagged and not self.keeps_tags:
            self._run.append(("", "x"))  # a zero byte: no tagged fields
        elif self.flexible:
            self._generate_tagged_fields_lines(shape.tagged, name, taken_names)

    def _generate_tagged_fields_lines(
        self, tagged: tuple[FieldInVersion, ...], name: str, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that write a struct's tagged fields, except those with their default."""
        tests = {place: self._make_default_comparison(place.field, f"{name}.{place.name}") for place in tagged}
        counts = [f"({test})" for test in tests.values()]
        unknown = choose_free_name("unknown", taken_names)
        if self.keeps_tags:
            self.source.add_line(f"{unknown} = getattr({name}, {UNKNOWN_TAGS!r}, ())")
            counts.append(f"len({unknown})")
        self.source.add_line(f"count = {' + '.join(counts)}")
        if self.keeps_tags:
            self._generate_length_prefix_lines("B", "count")
        else:
            self._run.append(("count", "B"))
            self.generate_line_of_collected_fields()
        with self.source.add_block_with_head("if count:"):
            last = -1
            for place, test in tests.items():
                self._generate_unknown_tags_line(unknown, last, place.tag)
                with self.source.add_block_with_head(f"if {test}:"), self.source.enter_field(place.name):
                    self._generate_tagged_field_lines(place, f"{name}.{place.name}", (*taken_names, unknown))
                last = place.tag
            self._generate_unknown_tags_line(unknown, last, TAGS_END)

    def _generate_unknown_tags_line(self, unknown: str, after_tag: int, before_tag: int) -> None:
        """Add the line that writes unknown fields, kept from reading, whose tags are between two others."""
        if self.keeps_tags and before_tag - after_tag > 1:
            self.source.add_line(f"{self.out} += unknown_tags_between({unknown}, {after_tag}, {before_tag})")

    def _generate_tagged_field_lines(
        self, versioned_field: FieldInVersion, value: str, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that write one tagged field, with its tag and size."""
        outer, self.out = self.out, choose_free_name("section", (*taken_names, self.out))
        self.source.add_line(f"{self.out} = bytearray()")
        self._generate_field_lines(versioned_field, value, (*taken_names, self.out))
        self.generate_line_of_collected_fields()
        self.source.add_line(f"{outer} += varint({versioned_field.tag}) + varint(len({self.out}))")
        self.source.add_line(f"{outer} += {self.out}")
        self.out = outer

    def _make_default_comparison(self, field: Field, value: str) -> str:
        """Return the condition under which a tagged field is written: it does not have its default."""
        maker = get_default_factory(field)
        if maker is list:
            return f"{value} != []"
        if maker is not None:
            return f"{value} != {self._bind_default_struct(maker)}"
        default = get_default_value(field)
        if default is not None:
            return f"{value} != {self.source.make_default_expression(default)}"
        if field.kind.struct is not None and not field.facts.nullable:
            return f"{value} is not None and {value} != {self._bind_default_struct(field.kind.struct)}"
        return f"{value} is not None"

    def _bind_default_struct(self, struct: Any) -> str:
        """Return the name by which the lines refer to a struct with its defaults."""
        return self.source.bind_object_to_name(f"default_{convert_to_snake_case(struct.__name__)}", struct())

    # --- runs of fixed size ---

    def _generate_length_prefix_lines(self, letter: str, length: str, function: str = "varint") -> None:
        """Add the line that writes a length, a count or a null marker, with the fixed fields before it."""
        if letter != "B":
            self._run.append((length, letter))
            self.generate_line_of_collected_fields()
            return
        run, self._run = self._run, []
        # The length is nearly always below 128, and a call would cost more than all else here.
        short = self._make_struct_pack_expression([*run, (length, "B")]) if run else f"ONE_BYTE[{length}]"
        long = f"{self._make_struct_pack_expression(run)} + " if run else ""
        self.source.add_line(f"{self.out} += {short} if {length} < 128 else {long}{function}({length})")

    def generate_line_of_collected_fields(self) -> None:
        """Add the line that writes, by one call of `struct`, the fields of fixed size that were collected for it."""
        run, self._run = self._run, []
        if run == [("", "x")]:
            self.source.add_line(f"{self.out}.append(0)")
        elif run:
            self.source.add_line(f"{self.out} += {self._make_struct_pack_expression(run)}")

    def _make_struct_pack_expression(self, values_and_letters: list[tuple[str, str]]) -> str:
        """Return the expression that packs values by their `struct` codes in one call."""
        values = ", ".join(value for value, _ in values_and_letters if value)
        return f"{self.source.bind_codec_method('pack', ''.join(letter for _, letter in values_and_letters))}({values})"

    # --- values ---

    def _generate_field_lines(self, versioned_field: FieldInVersion, value: str, taken_names: tuple[str, ...]) -> None:
        """Add the lines that write a field; one of fixed size is only collected."""
        kind = versioned_field.kind
        if kind.is_fixed:
            self._run.append((value, kind.code))
        elif kind.struct is not None:
            self._generate_nested_struct_lines(kind.struct, value, versioned_field, taken_names)
        else:
            self._generate_lines_of_value_with_length(
                kind, value, versioned_field.compact, versioned_field.nullable, taken_names
            )

    def _generate_nested_struct_lines(
        self, struct: type, value: str, versioned_field: FieldInVersion, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that write a struct in a field, or null."""
        waiting = tuple(value.partition(".")[0] for value, _ in self._run)
        name = choose_free_name(convert_to_snake_case(struct.__name__), (*taken_names, *waiting))
        self.source.add_line(f"{name} = {value}")
        if not versioned_field.nullable:
            self.generate_struct_lines(struct, name, taken_names)
            return
        null = 0 if versioned_field.tagged else -1
        self._run.append((f"{null} if {name} is None else 1", "b"))
        self.generate_line_of_collected_fields()
        with self.source.add_block_with_head(f"if {name} is not None:"):
            self.generate_struct_lines(struct, name, taken_names)
            self.generate_line_of_collected_fields()

    def _generate_lines_of_value_with_length(
        self, field_type: FieldType, value: str, compact: bool, nullable: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines for a value after its length, or an array after its count."""
        if field_type.item is not None:
            self._generate_array_lines(field_type.item, value, compact, nullable, taken_names)
        elif field_type.code == "records":
            self._generate_records_lines(value, compact, nullable)
        else:
            self._generate_bytes_lines(field_type.code, value, compact, nullable)

    def _generate_bytes_lines(self, code: str, value: str, compact: bool, nullable: bool) -> None:
        """Add the lines that write bytes or text after their length."""
        add = self.source.add_line
        letter = "B" if compact else "h" if code == "string" else "i"
        one = " + 1" if compact else ""
        content = f"{value}.encode()" if code == "string" else value
        if nullable:
            with self.source.add_block_with_head(f"if {value} is None:"):
                add(f'raw, n = b"", {0 if compact else -1}')
            with self.source.add_block_with_head("else:"):
                add(f"raw = {content}")
                add(f"n = len(raw){one}")
        else:
            add(f"raw = {content}")
            add(f"n = len(raw){one}")
        self._generate_length_prefix_lines(letter, "n", "string_length" if code == "string" else "varint")
        add(f"{self.out} += raw")

    def _generate_records_lines(self, value: str, compact: bool, nullable: bool) -> None:
        """Add the lines that write records, bytes or a region of a file, after their length."""
        add, block = self.source.add_line, self.source.add_block_with_head
        one = " + 1" if compact else ""
        add(f"value = {value}")
        if nullable:
            with block("if value is None:"):
                add(f'raw, n = b"", {0 if compact else -1}')
        with block(f"{'elif' if nullable else 'if'} isinstance(value, BYTES):"):
            add(f"raw, n = value, len(value){one}")
        with block("else:"):
            add(f"raw, n = None, value.size_bytes{one}")
        self._generate_length_prefix_lines("B" if compact else "i", "n")
        with block("if raw is None:"):
            add(f"{self.out}.put_region(value)")
        with block("else:"):
            add(f"{self.out} += raw")

    def _generate_array_lines(
        self, item: FieldType, value: str, compact: bool, nullable: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that write an array after its count."""
        add = self.source.add_line
        items = choose_free_name(value.rpartition(".")[2], taken_names)
        add(f"{items} = {value}")
        one = " + 1" if compact else ""
        if nullable:
            with self.source.add_block_with_head(f"if {items} is None:"):
                add(f"{items}, n = (), {0 if compact else -1}")
            with self.source.add_block_with_head("else:"):
                add(f"n = len({items}){one}")
        else:
            add(f"n = len({items}){one}")
        self._generate_length_prefix_lines("B" if compact else "i", "n")
        if item.is_fixed:
            add(f"{self.out} += {self._make_fixed_array_expression(item.code, items)}")
            return
        name = choose_free_name(
            convert_to_snake_case(item.struct.__name__) if item.struct else "item", (*taken_names, items)
        )
        if self.in_steps:
            with self.source.add_block_with_head(f"if n > {WRITTEN_ITEMS}:"):
                add(f"long_arrays.append({items})")
        with self.source.add_block_with_head(f"for {name} in {items}:"):
            if self.in_steps:
                self._generate_pause_lines()
            if item.struct is not None:
                self.generate_struct_lines(item.struct, name, (*taken_names, items))
                self.generate_line_of_collected_fields()
            else:
                self._generate_lines_of_value_with_length(item, name, compact, False, (*taken_names, items, name))

    def _generate_pause_lines(self) -> None:
        """Add the lines that count an item, and yield once the step has written enough of them."""
        add = self.source.add_line
        add("left -= 1")
        with self.source.add_block_with_head("if left < 0:"):
            with self.source.add_block_with_head("if len(out) > limit:"):
                add("raise AnswerTooLarge(limit, long_arrays)")
            add("yield")
            add(f"left = {WRITTEN_ITEMS - 1}")

    def _make_fixed_array_expression(self, letter: str, items: str) -> str:
        """Return the expression that packs all `items`, of this `struct` code."""
        if letter == "16s":
            return f'b"".join({items})'
        few = self.source.bind_codec_methods_for_few_items("pack", letter)
        return (
            f"{few}[len({items})](*{items}) if len({items}) < {FEW} else pack(f'>{{len({items})}}{letter}', *{items})"
        )
