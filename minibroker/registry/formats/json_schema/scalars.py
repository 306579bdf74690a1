"""The changes of texts and numbers, and of the limits and sets that any schema may have."""

from __future__ import annotations

from decimal import Decimal, DecimalException

from minibroker.registry.formats.json_schema.json_changes import ChangePart, SchemaChange
from minibroker.registry.formats.json_schema.json_model import Limit, Number, String


def compare_strings(original: String, update: String) -> list[ChangePart]:
    """Return the changes of length limits and pattern."""
    changes = compare_limits("maxLength", "MAX_LENGTH", original.max_length, update.max_length)
    changes += compare_limits("minLength", "MIN_LENGTH", original.min_length, update.min_length)
    if original.pattern != update.pattern:
        if original.pattern is None or update.pattern is None:
            verdict = "ADDED" if original.pattern is None else "REMOVED"
        else:
            verdict = "CHANGED"
        changes.append(SchemaChange(f"PATTERN_{verdict}", ("pattern",)))
    return changes


def compare_numbers(original: Number, update: Number) -> list[ChangePart]:
    """Return the changes of limits, "multipleOf", and of "integer" to "number" or back."""
    changes = compare_limits("maximum", "MAXIMUM", original.maximum, update.maximum)
    changes += compare_limits("minimum", "MINIMUM", original.minimum, update.minimum)
    changes += compare_limits(
        "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", original.exclusive_maximum, update.exclusive_maximum
    )
    changes += compare_limits(
        "exclusiveMinimum", "EXCLUSIVE_MINIMUM", original.exclusive_minimum, update.exclusive_minimum
    )
    changes += _compare_multiples_of(original.multiple_of, update.multiple_of)
    if original.integer != update.integer:
        changes.append(SchemaChange("TYPE_EXTENDED" if original.integer else "TYPE_NARROWED"))
    return changes


def _compare_multiples_of(before: Limit | None, after: Limit | None) -> list[ChangePart]:
    """Return the change of "multipleOf", if it changed. Confluent cuts fractions off; here they count."""
    if before == after:
        return []
    if before is None or after is None:
        kind = "MULTIPLE_OF_ADDED" if before is None else "MULTIPLE_OF_REMOVED"
    elif _is_divisor(before, after):
        kind = "MULTIPLE_OF_EXPANDED"
    else:
        kind = "MULTIPLE_OF_REDUCED" if _is_divisor(after, before) else "MULTIPLE_OF_CHANGED"
    return [SchemaChange(kind, ("multipleOf",))]


def _is_divisor(divisor: Limit, number: Limit) -> bool:
    """Return whether `number` is a multiple of `divisor`; False if they are too large to tell."""
    try:
        return not Decimal(number) % Decimal(divisor)
    except DecimalException:
        return False


def compare_limits(name: str, kind: str, before: Limit | None, after: Limit | None) -> list[ChangePart]:
    """Return the change of a limit, if it changed."""
    if before is None and after is None:
        return []
    if before is None or after is None:
        return [SchemaChange(f"{kind}_{'ADDED' if before is None else 'REMOVED'}", (name,))]
    if before == after:
        return []
    return [SchemaChange(f"{kind}_{'INCREASED' if before < after else 'DECREASED'}", (name,))]


def compare_sets(kind: str, before: frozenset[str] | set[str], after: frozenset[str] | set[str]) -> list[ChangePart]:
    """Return the change of a set of names or values: extended, narrowed or changed; none if it is equal."""
    if before == after:
        return []
    if after >= before:
        return [SchemaChange(f"{kind}_EXTENDED")]
    return [SchemaChange(f"{kind}_{'NARROWED' if before >= after else 'CHANGED'}")]
