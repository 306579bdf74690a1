"""Makes random messages from Kafka's JSON definitions, and their bytes by the rules of Kafka's protocol.

Reads the definition at every step and shares nothing with minibroker's code: a mistake there cannot hide here. A
message is a dict of the definition's field names; speed is no aim.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from conformance.messages.definitions import Definition, Spec, versions

CODES = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
SIZES_IN_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64}
LETTERS = "abcXYZ019-._ äß€漢😀"


class Interpreter:
    """One version of one message."""

    def __init__(self, definition: Definition, version: int, array_sizes: Sequence[int] = (0, 1, 2, 3, 20)) -> None:
        self._spec = definition.spec
        self._version = version
        self._flexible = version in definition.flexible
        self._common: dict[str, list[Spec]] = {
            each["name"]: each["fields"] for each in definition.spec.get("commonStructs", [])
        }
        self._array_sizes = array_sizes
        self._explicit_defaults = False
        self._random = random.Random(f"{definition.spec['name']} {version}")

    def random_message(self) -> Spec:
        """A message with random values; about a third of the tagged fields keep their default."""
        return self._random_struct(self._spec["fields"])

    def encode(self, message: Spec, *, explicit_defaults: bool = False) -> bytes:
        """The message's bytes; with explicit defaults, all tagged fields are among them: unusual, but allowed."""
        self._explicit_defaults = explicit_defaults
        return self._struct(self._spec["fields"], message)

    # --- What a field is in this version ---

    def has(self, field: Spec) -> bool:
        return self._version in versions(field.get("versions", field.get("taggedVersions")))

    def _is_tagged(self, field: Spec) -> bool:
        return self._version in versions(field.get("taggedVersions"))

    def _is_nullable(self, field: Spec) -> bool:
        return self._version in versions(field.get("nullableVersions"))

    def _is_compact(self, field: Spec) -> bool:
        return self._version in versions(field["flexibleVersions"]) if "flexibleVersions" in field else self._flexible

    def _fields(self, field: Spec, kind: str) -> list[Spec]:
        return field.get("fields") or self._common[kind]

    def default(self, field: Spec) -> Any:
        """Return what an absent field means, by the rules of Kafka's generator."""
        kind, default = field["type"], field.get("default")
        if default == "null" or kind == "records":
            return None
        if kind.startswith("[]"):
            return []
        if kind == "string":
            return default or ""
        if kind == "bytes":
            return b""
        if kind == "uuid":
            return bytes(16)
        if kind == "bool":
            return default in (True, "true")
        if kind == "float64":
            return float(default or 0)
        if kind in CODES:
            return int(str(default or 0), 0)
        return {each["name"]: self.default(each) for each in self._fields(field, kind) if self.has(each)}

    # --- Random values ---

    def _random_struct(self, fields: list[Spec]) -> Spec:
        return {field["name"]: self._random_field(field) for field in fields if self.has(field)}

    def _random_field(self, field: Spec) -> Any:
        if self._is_tagged(field) and self._random.random() < 0.35:
            return self.default(field)
        if self._is_nullable(field) and self._random.random() < 0.25:
            return None
        return self._random_value(field, field["type"])

    def _random_value(self, field: Spec, kind: str) -> Any:
        pick = self._random
        if kind.startswith("[]"):
            return [self._random_value(field, kind[2:]) for _ in range(pick.choice(self._array_sizes))]
        if kind == "bool":
            return pick.random() < 0.5
        if kind == "float64":
            return pick.uniform(-1e9, 1e9)
        if kind in SIZES_IN_BITS:
            return self._random_int(kind)
        if kind == "uuid":
            return pick.randbytes(16)
        if kind == "string":
            return "".join(pick.choices(LETTERS, k=pick.choice((0, 1, 7, 42, 200))))
        if kind in ("bytes", "records"):
            return pick.randbytes(pick.choice((0, 1, 126, 127, 128, 300)))
        return self._random_struct(self._fields(field, kind))

    def _random_int(self, kind: str) -> int:
        bits = SIZES_IN_BITS[kind]
        lowest = 0 if kind.startswith("u") else -(1 << (bits - 1))
        highest = lowest + (1 << bits) - 1
        return self._random.choice((lowest, highest, 0, 1, self._random.randint(lowest, highest)))

    # --- Bytes ---

    def _struct(self, fields: list[Spec], value: Spec) -> bytes:
        present = [field for field in fields if self.has(field)]
        body = b"".join(self._field(field, value[field["name"]]) for field in present if not self._is_tagged(field))
        if not self._flexible:
            return body
        tagged = sorted((int(field["tag"]), field) for field in present if self._is_tagged(field))
        sent = [
            (tag, self._field(each, value[each["name"]])) for tag, each in tagged if not self._is_default(each, value)
        ]
        return body + varint(len(sent)) + b"".join(varint(tag) + varint(len(data)) + data for tag, data in sent)

    def _is_default(self, field: Spec, value: Spec) -> bool:
        return not self._explicit_defaults and bool(value[field["name"]] == self.default(field))

    def _field(self, field: Spec, value: Any) -> bytes:
        kind = field["type"]
        if kind in CODES or kind == "uuid" or kind in ("string", "bytes", "records") or kind.startswith("[]"):
            return self._value(field, kind, value)
        if not self._is_nullable(field):
            return self._value(field, kind, value)
        if value is None:
            return b"\x00" if self._is_tagged(field) else b"\xff"
        return b"\x01" + self._value(field, kind, value)

    def _value(self, field: Spec, kind: str, value: Any) -> bytes:
        compact = self._is_compact(field)
        if kind in CODES:
            return struct.pack(">" + CODES[kind], value)
        if kind == "uuid":
            return bytes(value)
        if kind.startswith("[]"):
            items = b"".join(self._value(field, kind[2:], item) for item in value or [])
            return length(value, "i", compact) + items
        if kind in ("string", "bytes", "records"):
            raw = value.encode() if isinstance(value, str) else value
            return length(raw, "h" if kind == "string" else "i", compact) + (raw or b"")
        return self._struct(self._fields(field, kind), value)


def length(value: Any, code: str, compact: bool) -> bytes:
    """The length before a value, or a null."""
    if compact:
        return varint(0 if value is None else len(value) + 1)
    return struct.pack(">" + code, -1 if value is None else len(value))


def varint(value: int) -> bytes:
    """An unsigned varint."""
    return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + varint(value // 128)
