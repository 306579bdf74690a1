"""JSON text as Java's Jackson writes it, since canonical forms, and so ids and GUIDs, depend on each character."""

from __future__ import annotations

import json
import json.scanner
import re
from decimal import Decimal
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final, cast

ESCAPE = re.compile(r"\\(u00..|.)")  # whole, so that an escaped backslash before "u001f" stays
CONSTANTS = {None: "null", True: "true", False: "false"}
LARGE_CHARACTERS: Final = 64 << 10
LEAST_PLAIN, GREATEST_PLAIN = 1e-3, 1e7  # Java's Double.toString writes others with an exponent


def parse_json(text: str) -> Any:
    """Parse JSON. Raises ValueError, also for NaN and the infinities, which Python's parser accepts."""
    return make_json_decoder(text, parse_constant=_reject_nan_and_infinity).decode(text)


def make_json_decoder(text: str, **options: Any) -> json.JSONDecoder:
    """Return a decoder with these options; for a large text one that lets other threads go on meanwhile.

    Python's own scanner does; the faster one takes up to a tenth of a second for a megabyte. Both are recursive.
    """
    decoder, scanner = cast(Any, json.JSONDecoder(**options)), cast(Any, json.scanner)
    if len(text) > LARGE_CHARACTERS:
        decoder.scan_once = scanner.py_make_scanner(decoder)
    return cast(json.JSONDecoder, decoder)


def _reject_nan_and_infinity(text: str) -> Any:
    raise ValueError(f"Non-standard token '{text}'")


def format_json(value: Any) -> str:
    """Return a value as compact JSON; keys keep their order."""
    if isinstance(value, str):
        return quote_string(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote_string(key)}:{format_json(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(format_json, value)) + "]"
    if isinstance(value, float):
        return format_double(value)
    return CONSTANTS[value] if value is None or isinstance(value, bool) else str(value)


def quote_string(text: str) -> str:
    """Return a string in quotes. Characters beyond ASCII stay as they are; escapes have capital digits."""
    written = encode_basestring(text)
    if "\\u00" not in written:
        return written
    return ESCAPE.sub(lambda match: "\\u" + match[1][1:].upper() if len(match[1]) > 1 else match[0], written)


def format_double(number: float) -> str:
    """Return a number as Java's Double.toString writes it: 1.0, 1.0E10. Jackson puts what is no number into quotes."""
    if not isfinite(number):
        return '"NaN"' if number != number else f'"{"-" if number < 0 else ""}Infinity"'
    if number == 0 or LEAST_PLAIN <= abs(number) < GREATEST_PLAIN:
        plain = format(Decimal(repr(number)), "f")
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"
