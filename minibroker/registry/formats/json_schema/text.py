"""JSON as Jackson reads and writes it, which ids depend on: `canonicalString` of a JSON Schema is what Jackson writes.

Numbers keep their digits ("1.0", "1E+3"), names keep their order and, where a name occurs twice, the last value;
what comes after the first value is ignored.
"""

from __future__ import annotations

from decimal import Decimal, DecimalException
from typing import Any, Final

from minibroker.registry.formats.java_json import make_json_decoder, quote_string
from minibroker.registry.formats.schema import InvalidSchema

MAXIMUM_CHARACTERS: Final = 1 << 20
MAXIMUM_DEPTH: Final = 100  # of arrays and objects within each other


def read_json(text: str) -> Any:
    """Return the value of a text; numbers with a point or an exponent are of Decimal. Raises InvalidSchema."""
    if len(text) > MAXIMUM_CHARACTERS:
        raise InvalidSchema(f"the schema has more than {MAXIMUM_CHARACTERS} characters")
    # Jackson takes "NaN" and the like for numbers, and writes them as texts.
    decoder = make_json_decoder(text, parse_float=Decimal, parse_constant=str)
    try:
        value, _ = decoder.raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, DecimalException, RecursionError) as error:
        raise InvalidSchema(f"Invalid JSON: {error}") from None
    _check_depth(value)
    return value


def write_json(value: Any, *, ordered: bool = False) -> str:
    """Return a value as a text without spaces; `ordered` sorts the names of each object as Java sorts texts."""
    if isinstance(value, str):
        return quote_string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Decimal):
        return str(abs(value) if value.is_zero() else value)  # BigDecimal has no negative zero
    if isinstance(value, list):
        return f"[{','.join(write_json(item, ordered=ordered) for item in value)}]"
    if isinstance(value, dict):
        names = sorted(value, key=make_java_sort_key) if ordered else value
        return f"{{{','.join(f'{quote_string(name)}:{write_json(value[name], ordered=ordered)}' for name in names)}}}"
    return str(value)


def make_java_sort_key(text: str) -> bytes:
    """Return what texts are sorted by, so that they stand as Java sorts them: by units of UTF-16."""
    return text.encode("utf-16-be", "surrogatepass")


def _check_depth(value: Any) -> None:
    """Raise InvalidSchema if arrays and objects are nested too deeply."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAXIMUM_DEPTH:
            raise InvalidSchema(f"the schema is nested more than {MAXIMUM_DEPTH} levels deep")
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent if isinstance(parent, list) else ())
        ]
