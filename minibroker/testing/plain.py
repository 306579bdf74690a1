"""Messages of the protocol as plain values, for JSON and for people: names as in Kafka, in Python's spelling.

Bytes are given as text where they are text, and in hexadecimal digits otherwise; ids of topics as Kafka writes them.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.declare import Struct
from minibroker.protocol.fields import fields
from minibroker.protocol.primitives import uuid_text

UUID_CODE = "16s"


def plain(value: Any) -> Any:
    """A message, or part of one, as dictionaries, lists, texts and numbers."""
    if isinstance(value, Struct):
        return {field.name: _uuid(getattr(value, field.name), field.kind.code) for field in fields(type(value))}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return text_of(bytes(value))
    return value


def _uuid(value: Any, code: str) -> Any:
    return uuid_text(value) if code == UUID_CODE and value is not None else plain(value)


def text_of(data: bytes) -> str:
    """Bytes for people: the text that they are, or "0x" and their hexadecimal digits."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
