"""Options of .proto files in normal form: those of one name as one, and numbers as Java writes them."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal, DecimalException
from math import isfinite
from struct import pack, unpack
from typing import Final

from minibroker.registry.formats.protobuf.protobuf_model import Option, OptionKind, OptionWord

_THOUSANDTHS: Final = Decimal("0.001")
_LARGE: Final = 1e15  # from here on Java writes the digits that tell a double from the next one, and then zeros


def convert_option_to_map(option: Option) -> Option:
    """Return an option `(name).field = value` as `(name) = {field: value}`; others stay."""
    if option.kind is not OptionKind.OPTION:
        return option
    inner: Option = option.value
    value = inner.value
    if inner.kind in (OptionKind.BOOLEAN, OptionKind.NAME, OptionKind.NUMBER):
        value = OptionWord(inner.kind, value)
    elif inner.kind is OptionKind.OPTION:
        value = convert_option_to_map(inner).value
    return Option(option.name, OptionKind.MAP, {inner.name: value}, option.custom)


def merge_options(first: Option, second: Option) -> Option:
    """Return two options of the same name as one: maps are joined, and of anything else the last one stays."""
    if first.kind is not OptionKind.MAP or second.kind is not OptionKind.MAP:
        return second
    values = dict(first.value)
    for name, value in second.value.items():
        if name not in values:
            values[name] = value
            continue
        both = [each for some in (values[name], value) for each in (some if isinstance(some, list) else [some])]
        values[name] = list({repr(each): each for each in both}.values())
    return Option(second.name, OptionKind.MAP, values, second.custom)


def format_plain_number(text: str) -> str:
    """Return a number in decimal, with at most three digits behind the point. "-inf" and the like stay as they are."""
    try:
        return _normalize_number(text)
    except (ValueError, DecimalException):
        return text


def _normalize_number(text: str) -> str:
    """Return a number in decimal. Raises ValueError or DecimalException."""
    if "_" in text:  # which Python takes in a number
        raise ValueError(text)
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if digits[:2].lower() == "0x":
        return f"{sign}{int(digits[2:], 16)}"
    if digits.isdecimal():
        octal = len(digits) > 1 and digits[0] == "0"
        return f"{sign if int(digits) else ''}{int(digits, 8 if octal else 10)}"
    number = _round_to_binary(text)
    if not number.is_finite() or abs(number.adjusted()) > 400:
        raise ValueError(text)
    rounded = number.quantize(_THOUSANDTHS, rounding=ROUND_HALF_EVEN) if number.adjusted() < 20 else number
    plain = f"{rounded:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _round_to_binary(text: str) -> Decimal:
    """Return a number as Java holds it: a float if at most 7 digits are behind the point, a double up to 16 of them.

    One that is too large or too small for these is exact.
    """
    exact = Decimal(text.rstrip("dDfF"))
    mantissa = text.lower().rstrip("df").partition("e")[0]
    behind = 0 if text[-1] in "fF" else 8 if text[-1] in "dD" else len(mantissa.partition(".")[2])
    if behind > 16 or not exact.is_finite():
        return exact
    for form in "fd" if behind <= 7 else "d":
        try:
            (number,) = unpack(form, pack(form, float(exact)))
        except OverflowError:
            continue
        if isfinite(number) and (number or not exact):
            return Decimal(number) if abs(number) < _LARGE else Decimal(repr(number))
    return exact
