"""Generates the Python that reads one version of one message: straight code, nested like the message.

The generated function is `read(data, pos, end)`, which returns the message and the position after it. Neighbouring
fields of fixed size, with the length that follows them, are read by one struct call. Every length is compared with the
rest of the data before it is used. `source.py` compiles the text into a function.

With `keeps_tags`, tagged fields that are not declared are kept with their struct, for a writer that does so, too.

With `in_steps`, for large requests, it is `read(data, pos, end, allowance)`: a generator that yields after every
thousand items, and also returns the long arrays. It refuses a count that Kafka would refuse, or whose objects would
take more than the allowance, before it creates any of them.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any

from minibroker.protocol import primitives
from minibroker.protocol.fields import FieldType, get_default_factory, get_default_value
from minibroker.protocol.layout import (
    FieldInVersion,
    StructLayout,
    estimate_item_memory_bytes,
    make_struct_layout,
    measure_smallest_item_bytes,
)
from minibroker.protocol.primitives import MAX_TAGS
from minibroker.protocol.source import (
    FEW,
    READ_ITEMS,
    UNKNOWN_TAGS,
    FunctionSource,
    choose_free_name,
    convert_to_snake_case,
)

MAX_ITEMS = 1_000_000  # in one array, as in Kafka 4.4

_NAMES: dict[str, Any] = {
    "new": object.__new__,
    "unpack_from": unpack_from,
    "read_varint": primitives.read_unsigned_varint,
    "read_string_length": primitives.read_string_length,
    "read_tag": primitives.read_tag_and_field_extent,
    "read_unknown_tagged_fields": primitives.read_unknown_tagged_fields,
    "skip_unknown_tagged_fields": primitives.skip_unknown_tagged_fields,
    "read_uuids": primitives.read_uuids,
    "bad_length": primitives.make_bad_length_error,
    "bad_tag_size": primitives.make_bad_tag_size_error,
    "too_many": primitives.make_too_many_items_error,
    "too_costly": primitives.make_too_much_memory_error,
}

_SLICES = {
    "string": 'str(data[pos:stop], "utf-8")',
    "bytes": "bytes(data[pos:stop])",
    "records": "memoryview(data)[pos:stop]",  # never a copy
}


def generate_reader(
    struct: type, version: int, flexible: bool, *, in_steps: bool = False, keeps_tags: bool = False
) -> FunctionSource:
    """Generate the function that reads a version of a struct, at once or in steps."""
    source = FunctionSource(dict(_NAMES))
    with source.add_block_with_head(f"def read(data, pos, end{', allowance' if in_steps else ''}):"):
        if in_steps:
            source.add_line(f"left, long_arrays = {READ_ITEMS}, []")
        reader = _ReaderGenerator(source, version, flexible, in_steps, keeps_tags)
        name = reader.generate_struct_lines(struct, ())
        reader.generate_lines_of_collected_fields()
        if in_steps:
            with source.add_block_with_head("if end < 0:"):  # never true: the yield makes every function a generator
                source.add_line("yield")
        source.add_line(f"return {name}, pos{', long_arrays' if in_steps else ''}")
    return source


class _ReaderGenerator:
    """Adds the lines for each field. `_run` collects fixed-size fields for a common struct call.

    `taken_names` are the names of the variables that enclosing loops still need.
    """

    def __init__(self, source: FunctionSource, version: int, flexible: bool, in_steps: bool, keeps_tags: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.keeps_tags = keeps_tags
        self._run: list[tuple[str, str, str, int]] = []  # target, letters, field's path, bytes

    # --- structs ---

    def generate_struct_lines(self, struct: type, taken_names: tuple[str, ...]) -> str:
        """Add the lines that read a struct into a new variable. Return its name."""
        waiting = tuple(target.partition(".")[0] for target, *_ in self._run)
        name = choose_free_name(convert_to_snake_case(struct.__name__), (*taken_names, *waiting))
        self.source.add_line(f"{name} = new({self.source.bind_object_to_name(struct.__name__, struct)})")
        shape = make_struct_layout(struct, self.version, self.flexible)
        self._generate_default_lines(name, shape)
        for place in shape.body:
            with self.source.enter_field(place.name):
                self._generate_field_lines(place, f"{name}.{place.name}", (*taken_names, name))
        if self.flexible:
            self._generate_tagged_fields_lines(name, shape.tagged, (*taken_names, name))
        return name

    def _generate_default_lines(self, name: str, layout: StructLayout) -> None:
        """Add the lines that set absent and tagged fields to their defaults."""
        for field in [*layout.absent, *(place.field for place in layout.tagged)]:
            maker = get_default_factory(field)
            if maker is None:
                value = self.source.make_default_expression(get_default_value(field))
            else:
                value = "[]" if maker is list else f"{self.source.bind_object_to_name(maker.__name__, maker)}()"
            self.source.add_line(f"{name}.{field.name} = {value}")

    def _generate_tagged_fields_lines(
        self, struct_variable: str, tagged: tuple[FieldInVersion, ...], taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that read a struct's tagged fields."""
        add, block = self.source.add_line, self.source.add_block_with_head
        self._generate_length_lines("B")
        if not tagged:
            with block("if n:"):
                self._generate_tag_count_lines()
                if self.keeps_tags:
                    add(f"{struct_variable}.{UNKNOWN_TAGS}, pos = read_unknown_tagged_fields(data, pos, end, n)")
                else:
                    add("pos = skip_unknown_tagged_fields(data, pos, end, n)")
            return
        tag, stop = choose_free_name("tag", taken_names), choose_free_name("tag_end", taken_names)
        with block("if n:"):
            self._generate_tag_count_lines()
            with block(f"if n > {MAX_TAGS}:"):
                add(f"raise too_many(n, {MAX_TAGS})")
            add(f"{tag} = -1")
            if self.keeps_tags:
                add(f"{struct_variable}.{UNKNOWN_TAGS} = []")
            with block("for _ in range(n):"):
                add(f"{tag}, {stop}, pos = read_tag(data, pos, end, {tag})")
                for keyword, place in zip(["if"] + ["elif"] * len(tagged), tagged, strict=False):
                    with block(f"{keyword} {tag} == {place.tag}:"), self.source.enter_field(place.name):
                        self._generate_field_lines(place, f"{struct_variable}.{place.name}", (*taken_names, tag, stop))
                        self.generate_lines_of_collected_fields()
                with block("else:"):
                    if self.keeps_tags:
                        add(f"{struct_variable}.{UNKNOWN_TAGS}.append(({tag}, bytes(data[pos:{stop}])))")
                    add(f"pos = {stop}")
                with block(f"if pos != {stop}:"):
                    add(f"raise bad_tag_size({tag}, pos, {stop})")

    def _generate_tag_count_lines(self) -> None:
        """Add the lines that read the rest of the number of tagged fields, whose first byte is `n`."""
        self._generate_long_varint_lines("read_varint")
        if self.in_steps:
            self.source.add_line("left -= n")

    # --- runs of fixed size ---

    def _generate_length_lines(self, letter: str) -> None:
        """Add the line that reads a length, a count or a null marker into `n`, with the fixed fields before it."""
        self._run.append(("n", letter, self.source.current_field_path, {"B": 1, "b": 1, "h": 2, "i": 4}[letter]))
        self.generate_lines_of_collected_fields()

    def generate_lines_of_collected_fields(self) -> None:
        """Add the lines that read, by one call of `struct`, the fields of fixed size that were collected for it."""
        run, self._run = self._run, []
        if not run:
            return
        letters = "".join(row[1] for row in run)
        targets = ", ".join(row[0] for row in run)
        if letters == "B":
            value = "data[pos]"
        else:
            targets += "," if len(run) == 1 else ""
            value = f"{self.source.bind_codec_method('unpack_from', letters)}(data, pos)"
        self.source.add_line(f"{targets} = {value}", *((row[2], row[3]) for row in run))
        self.source.add_line(f"pos += {sum(row[3] for row in run)}")

    # --- values ---

    def _generate_field_lines(self, versioned_field: FieldInVersion, target: str, taken_names: tuple[str, ...]) -> None:
        """Add the lines that read a field into `target`; one of fixed size is only collected."""
        kind = versioned_field.kind
        if kind.is_fixed:
            self._run.append((target, kind.code, self.source.current_field_path, kind.size_bytes))
        elif kind.struct is not None:
            self._generate_nested_struct_lines(kind.struct, target, versioned_field, taken_names)
        else:
            self._generate_lines_of_value_with_length(
                kind, target, versioned_field.compact, versioned_field.nullable, taken_names
            )

    def _generate_nested_struct_lines(
        self, struct: type, target: str, versioned_field: FieldInVersion, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that read a struct in a field, or null, into `target`."""
        if not versioned_field.nullable:
            self.source.add_line(f"{target} = {self.generate_struct_lines(struct, taken_names)}")
            return
        self._generate_length_lines(
            "B" if versioned_field.tagged else "b"
        )  # null is 0 in a tagged field, and -1 elsewhere
        with self.source.add_block_with_head("if n == 0:" if versioned_field.tagged else "if n < 0:"):
            self.source.add_line(f"{target} = None")
        with self.source.add_block_with_head("else:"):
            name = self.generate_struct_lines(struct, taken_names)
            self.generate_lines_of_collected_fields()
            self.source.add_line(f"{target} = {name}")

    def _generate_lines_of_value_with_length(
        self, field_type: FieldType, target: str, compact: bool, nullable: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines for a value after its length, or an array after its count."""
        self._generate_length_lines("B" if compact else "h" if field_type.code == "string" else "i")
        if compact:
            self._generate_long_varint_lines("read_string_length" if field_type.code == "string" else "read_varint")
            self.source.add_line("n -= 1")
        if not nullable:
            self._generate_lines_after_length(field_type, target, compact, nullable, taken_names)
            return
        with self.source.add_block_with_head("if n < 0:"):
            self.source.add_line(f"{target} = None")
        with self.source.add_block_with_head("else:"):
            self._generate_lines_after_length(field_type, target, compact, nullable, taken_names)

    def _generate_lines_after_length(
        self, field_type: FieldType, target: str, compact: bool, nullable: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that read `n` bytes, or an array of `n` items, into `target`."""
        if field_type.item is None:
            self._generate_sliced_bytes_lines(field_type, target, nullable)
        else:
            self._generate_array_lines(field_type.item, target, compact, nullable, taken_names)

    def _generate_long_varint_lines(self, function: str) -> None:
        """Add the lines that read a varint of more than the byte `n` by `function`."""
        with self.source.add_block_with_head("if n > 127:"):
            self.source.add_line(f"n, pos = {function}(data, pos - 1)")

    def _generate_sliced_bytes_lines(self, field_type: FieldType, target: str, nullable: bool) -> None:
        """Add the lines that slice `n` bytes from the data into `target`."""
        add = self.source.add_line
        add("stop = pos + n")
        with self.source.add_block_with_head("if stop > end:" if nullable else "if not pos <= stop <= end:"):
            add("raise bad_length(n, end - pos)")
        add(f"{target} = {_SLICES[field_type.code]}")
        add("pos = stop")

    def _generate_array_lines(
        self, item: FieldType, target: str, compact: bool, nullable: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that check the count `n`, and read an array into `target`."""
        add = self.source.add_line
        least = measure_smallest_item_bytes(item, self.version, compact)
        most = "end - pos" if least == 1 else f"(end - pos) // {least}"
        with self.source.add_block_with_head(f"if n > {most}:" if nullable else f"if not 0 <= n <= {most}:"):
            add("raise bad_length(n, end - pos)")
        if self.in_steps:
            self._generate_memory_check_lines(item)
        if item.is_fixed:
            add(f"{target} = {self._make_fixed_array_expression(item.code)}")
            add(f"pos += n * {item.size_bytes}" if item.size_bytes > 1 else "pos += n")
            return
        items = choose_free_name(target.rpartition(".")[2], taken_names)
        add(f"{items} = {target} = []")
        if self.in_steps:
            with self.source.add_block_with_head(f"if n > {READ_ITEMS}:"):
                add(f"long_arrays.append({items})")
        with self.source.add_block_with_head("for _ in range(n):"):
            if self.in_steps:
                add("left -= 1")
                with self.source.add_block_with_head("if left < 0:"):
                    add("yield")
                    add(f"left = {READ_ITEMS - 1}")
            self._generate_array_item_lines(item, items, compact, (*taken_names, items))

    def _generate_memory_check_lines(self, item: FieldType) -> None:
        """Add the lines that subtract the memory of `n` items from the allowance, and refuse too many."""
        with self.source.add_block_with_head(f"if n > {MAX_ITEMS}:"):
            self.source.add_line(f"raise too_many(n, {MAX_ITEMS})")
        self.source.add_line(f"allowance -= n * {estimate_item_memory_bytes(item, self.version, self.flexible)}")
        with self.source.add_block_with_head("if allowance < 0:"):
            self.source.add_line("raise too_costly(n)")

    def _make_fixed_array_expression(self, letter: str) -> str:
        """Return the expression that reads `n` items of this `struct` code."""
        if letter == "16s":
            return "read_uuids(data, pos, n)"
        few = self.source.bind_codec_methods_for_few_items("unpack_from", letter)
        return f"[*({few}[n](data, pos) if n < {FEW} else unpack_from(f'>{{n}}{letter}', data, pos))]"

    def _generate_array_item_lines(
        self, item: FieldType, items: str, compact: bool, taken_names: tuple[str, ...]
    ) -> None:
        """Add the lines that read an item and append it to the list named `items`."""
        if item.struct is not None:
            name = self.generate_struct_lines(item.struct, taken_names)
            self.generate_lines_of_collected_fields()
        else:
            name = choose_free_name("item", taken_names)
            self._generate_lines_of_value_with_length(item, name, compact, False, taken_names)
        self.source.add_line(f"{items}.append({name})")
