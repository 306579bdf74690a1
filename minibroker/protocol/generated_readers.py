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
    "read_tag": primitives.read_tag_and_size,
    "read_unknown_tags": primitives.read_unknown_tags,
    "skip_tags": primitives.skip_tags,
    "read_uuids": primitives.read_uuids,
    "bad_length": primitives.make_bad_length_error,
    "bad_tag_size": primitives.make_bad_tag_size_error,
    "too_many": primitives.make_too_many_error,
    "too_costly": primitives.make_too_costly_error,
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
    with source.open_block(f"def read(data, pos, end{', allowance' if in_steps else ''}):"):
        if in_steps:
            source.add_line(f"left, long_arrays = {READ_ITEMS}, []")
        reader = _ReaderGenerator(source, version, flexible, in_steps, keeps_tags)
        name = reader.add_struct(struct, ())
        reader.add_collected_fields()
        if in_steps:
            with source.open_block("if end < 0:"):  # never true: the yield makes every function a generator
                source.add_line("yield")
        source.add_line(f"return {name}, pos{', long_arrays' if in_steps else ''}")
    return source


class _ReaderGenerator:
    """Adds the lines for each field. `_run` collects fixed-size fields for a common struct call.

    `scope` has the names of the variables that enclosing loops still need.
    """

    def __init__(self, source: FunctionSource, version: int, flexible: bool, in_steps: bool, keeps_tags: bool) -> None:
        self.source = source
        self.version = version
        self.flexible = flexible
        self.in_steps = in_steps
        self.keeps_tags = keeps_tags
        self._run: list[tuple[str, str, str, int]] = []  # target, letters, field's path, bytes

    # --- structs ---

    def add_struct(self, struct: type, scope: tuple[str, ...]) -> str:
        """Add the lines that read a struct into a new variable. Return its name."""
        waiting = tuple(target.partition(".")[0] for target, *_ in self._run)
        name = choose_free_name(convert_to_snake_case(struct.__name__), (*scope, *waiting))
        self.source.add_line(f"{name} = new({self.source.bind_name(struct.__name__, struct)})")
        shape = make_struct_layout(struct, self.version, self.flexible)
        self._add_defaults(name, shape)
        for place in shape.body:
            with self.source.enter_field(place.name):
                self._add_field(place, f"{name}.{place.name}", (*scope, name))
        if self.flexible:
            self._add_tagged_fields(name, shape.tagged, (*scope, name))
        return name

    def _add_defaults(self, name: str, shape: StructLayout) -> None:
        for field in [*shape.absent, *(place.field for place in shape.tagged)]:
            maker = get_default_factory(field)
            if maker is None:
                value = self.source.make_default_expression(get_default_value(field))
            else:
                value = "[]" if maker is list else f"{self.source.bind_name(maker.__name__, maker)}()"
            self.source.add_line(f"{name}.{field.name} = {value}")

    def _add_tagged_fields(self, name: str, tagged: tuple[FieldInVersion, ...], scope: tuple[str, ...]) -> None:
        add, block = self.source.add_line, self.source.open_block
        self._add_length("B")
        if not tagged:
            with block("if n:"):
                self._add_tag_count()
                if self.keeps_tags:
                    add(f"{name}.{UNKNOWN_TAGS}, pos = read_unknown_tags(data, pos, end, n)")
                else:
                    add("pos = skip_tags(data, pos, end, n)")
            return
        tag, stop = choose_free_name("tag", scope), choose_free_name("tag_end", scope)
        with block("if n:"):
            self._add_tag_count()
            with block(f"if n > {MAX_TAGS}:"):
                add(f"raise too_many(n, {MAX_TAGS})")
            add(f"{tag} = -1")
            if self.keeps_tags:
                add(f"{name}.{UNKNOWN_TAGS} = []")
            with block("for _ in range(n):"):
                add(f"{tag}, {stop}, pos = read_tag(data, pos, end, {tag})")
                for keyword, place in zip(["if"] + ["elif"] * len(tagged), tagged, strict=False):
                    with block(f"{keyword} {tag} == {place.tag}:"), self.source.enter_field(place.name):
                        self._add_field(place, f"{name}.{place.name}", (*scope, tag, stop))
                        self.add_collected_fields()
                with block("else:"):
                    if self.keeps_tags:
                        add(f"{name}.{UNKNOWN_TAGS}.append(({tag}, bytes(data[pos:{stop}])))")
                    add(f"pos = {stop}")
                with block(f"if pos != {stop}:"):
                    add(f"raise bad_tag_size({tag}, pos, {stop})")

    def _add_tag_count(self) -> None:
        self._add_rest_of_long_varint("read_varint")
        if self.in_steps:
            self.source.add_line("left -= n")

    # --- runs of fixed size ---

    def _add_length(self, letter: str) -> None:
        """Add the line that reads a length, a count or a null marker into `n`, with the fixed fields before it."""
        self._run.append(("n", letter, self.source.current_field_path, {"B": 1, "b": 1, "h": 2, "i": 4}[letter]))
        self.add_collected_fields()

    def add_collected_fields(self) -> None:
        """Add the lines that read the collected fields."""
        run, self._run = self._run, []
        if not run:
            return
        letters = "".join(row[1] for row in run)
        targets = ", ".join(row[0] for row in run)
        if letters == "B":
            value = "data[pos]"
        else:
            targets += "," if len(run) == 1 else ""
            value = f"{self.source.bind_struct_method('unpack_from', letters)}(data, pos)"
        self.source.add_line(f"{targets} = {value}", *((row[2], row[3]) for row in run))
        self.source.add_line(f"pos += {sum(row[3] for row in run)}")

    # --- values ---

    def _add_field(self, place: FieldInVersion, target: str, scope: tuple[str, ...]) -> None:
        kind = place.kind
        if kind.is_fixed:
            self._run.append((target, kind.code, self.source.current_field_path, kind.size_bytes))
        elif kind.struct is not None:
            self._add_nested(kind.struct, target, place, scope)
        else:
            self._add_value_after_length(kind, target, place.compact, place.nullable, scope)

    def _add_nested(self, struct: type, target: str, place: FieldInVersion, scope: tuple[str, ...]) -> None:
        if not place.nullable:
            self.source.add_line(f"{target} = {self.add_struct(struct, scope)}")
            return
        self._add_length("B" if place.tagged else "b")  # null is 0 in a tagged field, and -1 elsewhere
        with self.source.open_block("if n == 0:" if place.tagged else "if n < 0:"):
            self.source.add_line(f"{target} = None")
        with self.source.open_block("else:"):
            name = self.add_struct(struct, scope)
            self.add_collected_fields()
            self.source.add_line(f"{target} = {name}")

    def _add_value_after_length(
        self, kind: FieldType, target: str, compact: bool, nullable: bool, scope: tuple[str, ...]
    ) -> None:
        """Add the lines for a value after its length, or an array after its count."""
        self._add_length("B" if compact else "h" if kind.code == "string" else "i")
        if compact:
            self._add_rest_of_long_varint("read_string_length" if kind.code == "string" else "read_varint")
            self.source.add_line("n -= 1")
        if not nullable:
            self._add_bytes_or_text(kind, target, compact, nullable, scope)
            return
        with self.source.open_block("if n < 0:"):
            self.source.add_line(f"{target} = None")
        with self.source.open_block("else:"):
            self._add_bytes_or_text(kind, target, compact, nullable, scope)

    def _add_bytes_or_text(
        self, kind: FieldType, target: str, compact: bool, nullable: bool, scope: tuple[str, ...]
    ) -> None:
        if kind.item is None:
            self._add_sliced_bytes(kind, target, nullable)
        else:
            self._add_array(kind.item, target, compact, nullable, scope)

    def _add_rest_of_long_varint(self, function: str) -> None:
        with self.source.open_block("if n > 127:"):
            self.source.add_line(f"n, pos = {function}(data, pos - 1)")

    def _add_sliced_bytes(self, kind: FieldType, target: str, nullable: bool) -> None:
        add = self.source.add_line
        add("stop = pos + n")
        with self.source.open_block("if stop > end:" if nullable else "if not pos <= stop <= end:"):
            add("raise bad_length(n, end - pos)")
        add(f"{target} = {_SLICES[kind.code]}")
        add("pos = stop")

    def _add_array(self, item: FieldType, target: str, compact: bool, nullable: bool, scope: tuple[str, ...]) -> None:
        add = self.source.add_line
        least = measure_smallest_item_bytes(item, self.version, compact)
        most = "end - pos" if least == 1 else f"(end - pos) // {least}"
        with self.source.open_block(f"if n > {most}:" if nullable else f"if not 0 <= n <= {most}:"):
            add("raise bad_length(n, end - pos)")
        if self.in_steps:
            self._add_memory_check(item)
        if item.is_fixed:
            add(f"{target} = {self._make_fixed_array_expression(item.code)}")
            add(f"pos += n * {item.size_bytes}" if item.size_bytes > 1 else "pos += n")
            return
        items = choose_free_name(target.rpartition(".")[2], scope)
        add(f"{items} = {target} = []")
        if self.in_steps:
            with self.source.open_block(f"if n > {READ_ITEMS}:"):
                add(f"long_arrays.append({items})")
        with self.source.open_block("for _ in range(n):"):
            if self.in_steps:
                add("left -= 1")
                with self.source.open_block("if left < 0:"):
                    add("yield")
                    add(f"left = {READ_ITEMS - 1}")
            self._add_array_item(item, items, compact, (*scope, items))

    def _add_memory_check(self, item: FieldType) -> None:
        """Add the lines that subtract the memory of `n` items from the allowance, and refuse too many."""
        with self.source.open_block(f"if n > {MAX_ITEMS}:"):
            self.source.add_line(f"raise too_many(n, {MAX_ITEMS})")
        self.source.add_line(f"allowance -= n * {estimate_item_memory_bytes(item, self.version, self.flexible)}")
        with self.source.open_block("if allowance < 0:"):
            self.source.add_line("raise too_costly(n)")

    def _make_fixed_array_expression(self, letter: str) -> str:
        if letter == "16s":
            return "read_uuids(data, pos, n)"
        few = self.source.bind_struct_methods_by_count("unpack_from", letter)
        return f"[*({few}[n](data, pos) if n < {FEW} else unpack_from(f'>{{n}}{letter}', data, pos))]"

    def _add_array_item(self, item: FieldType, items: str, compact: bool, scope: tuple[str, ...]) -> None:
        if item.struct is not None:
            name = self.add_struct(item.struct, scope)
            self.add_collected_fields()
        else:
            name = choose_free_name("item", scope)
            self._add_value_after_length(item, name, compact, False, scope)
        self.source.add_line(f"{items}.append({name})")
