"""Random messages of every class and version, made from the declarations: small, but with every field used.

Whether the declarations are right is tested against kio, and in `conformance/` against Kafka's own definitions.
"""

from __future__ import annotations

import random
from typing import Any

from minibroker.protocol.declare import Message
from minibroker.protocol.describing import list_messages
from minibroker.protocol.fields import Field, FieldType, list_declared_fields
from tests.cases import for_each

BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


in_all_versions = for_each(
    ("message", "version"), [(message, version) for message in list_messages() for version in message.versions]
)


def random_message(message: type[Message], version: int, seed: int) -> Message:
    """A message with a random value in every field that the version has; the same for the same arguments."""
    made: Message = _Values(version, f"{message.__name__} {version} {seed}").struct(message)
    return made


class _Values:
    def __init__(self, version: int, seed: str) -> None:
        self._version = version
        self._random = random.Random(seed)

    def struct(self, struct: Any) -> Any:
        present = [field for field in list_declared_fields(struct) if self._version in field.facts.present]
        return struct(**{field.name: self._field(field) for field in present})

    def _field(self, field: Field) -> Any:
        if field.optional and self._version in field.facts.nullable and self._random.random() < 0.2:
            return None
        return self._value(field.kind)

    def _value(self, kind: FieldType) -> Any:
        pick = self._random
        if kind.item is not None:
            return [self._value(kind.item) for _ in range(pick.choice((1, 2)))]
        if kind.struct is not None:
            return self.struct(kind.struct)
        match kind.code:
            case "string":
                return pick.choice(("", "topic", "ключ"))
            case "bytes" | "records":
                return pick.randbytes(pick.choice((0, 3)))
            case "16s":
                return pick.randbytes(16)
            case "?":
                return pick.random() < 0.5
            case "d":
                return pick.uniform(-1e9, 1e9)
            case "H" | "I":
                return pick.randint(0, 2 ** (16 if kind.code == "H" else 32) - 1)
        half = 2 ** (BITS[kind.code] - 1)
        return pick.randint(-half, half - 1)
