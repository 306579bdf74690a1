"""Compares two JSON Schemas as Confluent does: every change from what was written with to what is read with.

Pairs of schemas that were compared are remembered, since schemas may refer to each other in circles. A pair that is
met again while it is compared counts as compatible. Where it then turns out not to be, what was concluded from that
is compared again: so the verdict is the greatest fixed point, whatever the order.

How deeply schemas refer to each other has no bound, so a comparison does not call another one: it is a generator, and
yields the pair of schemas whose changes it needs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple

from minibroker.registry.formats.comparing_budget import CHARACTERS_OF_A_STEP, ComparingBudget, remove_compared_pairs
from minibroker.registry.formats.java_order import unite_in_java_order
from minibroker.registry.formats.json_schema.json_changes import (
    AssumedChanges,
    ChangePart,
    SchemaChange,
    SchemaChanges,
    put_changes_under_key,
)
from minibroker.registry.formats.json_schema.json_model import (
    Array,
    Combined,
    Const,
    Empty,
    Enum,
    Never,
    Not,
    Number,
    Object,
    Reference,
    Schema,
    String,
)
from minibroker.registry.formats.json_schema.matching import find_maximum_matching
from minibroker.registry.formats.json_schema.plain_changes import (
    compare_annotations,
    compare_criteria,
    compare_required,
    get_kind_of_added_property,
    get_schema_of_other_items,
    is_open_array,
    is_open_object,
)
from minibroker.registry.formats.json_schema.scalars import (
    compare_limits,
    compare_numbers,
    compare_sets,
    compare_strings,
)
from minibroker.registry.formats.searching import PatternFinder

PairIdentity = tuple[int, int]
SchemaPair = tuple[Schema | None, Schema | None]  # of which either may be missing


ASSUMED, REFUTED = AssumedChanges(compatible=True), AssumedChanges(compatible=False)  # of a pair that is being compared
STEPS_OF_A_PAIR: Final = 10


class PatternSearch(NamedTuple):
    """Schemas by patterns, and a name that these may be found in."""

    patterns: Mapping[str, Schema]
    name: str


class PartsMatchingQuestion(NamedTuple):
    """Pairs of parts that are compatible, of which as many as possible are wanted without a part twice."""

    edges: Mapping[tuple[int, int], SchemaChanges]
    lefts: int


PENDING: Final = object()  # the answer to a question that needs a comparison
ComparisonQuestion = SchemaPair | PatternSearch | PartsMatchingQuestion
# A pair is answered by its changes, a search by a schema or None, a matching by edges.
ComparisonSteps = Generator[ComparisonQuestion, Any, list[ChangePart]]


class SchemaComparison:
    """What is known of the pairs of schemas that were compared; nodes are told apart by identity."""

    def __init__(self, allowed: frozenset[str], budget: ComparingBudget) -> None:
        self._allowed = allowed
        self._known: dict[PairIdentity, SchemaChanges] = {}
        self._refuted: set[PairIdentity] = set()  # were taken for compatible in a circle, and are not
        self._assumed: set[PairIdentity] = set()
        self._open: set[PairIdentity] = set()
        self._budget = budget
        self._finder = PatternFinder(budget)

    def compare_all(self, original: Schema, update: Schema) -> SchemaChanges:
        """Return all changes from `original` to `update`. Raises ComparisonTooLarge."""
        while True:
            changes = self.compare_assuming_pairs_in_progress_compatible(original, update)
            if not self.refute_wrong_assumptions():
                return changes
            self.clear_compared_pairs()

    def clear_compared_pairs(self) -> None:
        """Forget what was compared, in small portions, once the changes are not needed any more."""
        remove_compared_pairs(self._known, reversed(list(self._known)))

    def refute_wrong_assumptions(self) -> bool:
        """Return whether a pair that was assumed compatible is not; then all has to be compared again."""
        wrong = {pair for pair in self._assumed if pair in self._known and not self._known[pair].compatible}
        self._refuted |= wrong
        self._assumed.clear()
        return bool(wrong)

    def compare_assuming_pairs_in_progress_compatible(self, original: Schema, update: Schema) -> SchemaChanges:
        """Return the changes from one schema to the other. Raises ComparisonTooLarge."""
        running: list[tuple[PairIdentity, ComparisonSteps]] = []
        question: ComparisonQuestion = (original, update)
        while True:
            self._budget.spend_steps()
            answer = self._find_answer_or_pending(question)
            begins = answer is PENDING
            if begins:
                running.append(self._begin_comparison(question))
            while running:
                identity, comparing = running[-1]
                try:
                    question = next(comparing) if begins else comparing.send(answer)
                    break
                except StopIteration as ended:
                    answer = self._known[identity] = SchemaChanges(ended.value, self._allowed)
                    begins = False
                    self._open.discard(identity)
                    running.pop()
            else:
                changes: SchemaChanges = answer
                return changes

    def _find_answer_or_pending(self, question: ComparisonQuestion) -> Any:
        """Return the answer to a question, or PENDING if a pair of schemas has to be compared for it."""
        if isinstance(question, PatternSearch):
            return self._find_schema_of_matching_pattern(question)
        if isinstance(question, PartsMatchingQuestion):
            return find_maximum_matching(question.edges, question.lefts, self._budget.spend_steps)
        return self._find_known_changes(question)

    def _find_schema_of_matching_pattern(self, search: PatternSearch) -> Schema | None:
        """Return the schema of the first pattern that is found in a name, or None."""
        found = (
            schema
            for pattern, schema in search.patterns.items()
            if self._finder.matches_part_of_name(pattern, search.name)
        )
        return next(found, None)

    def _find_known_changes(self, schema_pair: SchemaPair) -> Any:
        """Return the changes of a pair that need no comparison, or PENDING."""
        original, update = schema_pair
        if original is None or update is None:
            kinds = [] if original is update else ["SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED"]
            return SchemaChanges([SchemaChange(kind) for kind in kinds], self._allowed)
        identity = id(_resolve_reference(original)), id(_resolve_reference(update))
        if identity in self._known:
            return self._known[identity]
        if identity not in self._open:
            return PENDING
        if identity not in self._refuted:
            self._assumed.add(identity)
        return REFUTED if identity in self._refuted else ASSUMED

    def _begin_comparison(self, question: ComparisonQuestion) -> tuple[PairIdentity, ComparisonSteps]:
        """Return a pair's identity and the generator that compares it. Raises ComparisonTooLarge."""
        before, after = question
        assert isinstance(before, Schema) and isinstance(after, Schema)
        original, update = _resolve_reference(before), _resolve_reference(after)
        self._budget.spend_steps(STEPS_OF_A_PAIR + _count_steps_of_schema(original) + _count_steps_of_schema(update))
        identity = id(original), id(update)
        self._open.add(identity)
        return identity, _compare_schemas(original, update)


def _count_steps_of_schema(schema: Schema) -> int:
    """Return how many steps it takes to compare a schema without its parts, by its names and texts."""
    texts = [schema.id, schema.title, schema.description, schema.default]
    if isinstance(schema, Object):
        texts += [*schema.properties, *schema.required, *schema.property_dependencies, *schema.schema_dependencies]
        texts += [name for names in schema.property_dependencies.values() for name in names]
    elif isinstance(schema, Enum):
        texts += schema.values
    elif isinstance(schema, Combined):
        texts += [part.text for part in schema.parts]
    elif isinstance(schema, Array):
        texts += [""] * len(schema.first)
    return sum(1 + len(text) // CHARACTERS_OF_A_STEP for text in texts if text is not None)


def _compare_schemas(original: Schema, update: Schema) -> ComparisonSteps:
    """Return the changes of a pair that was not compared before."""
    if isinstance(original, Combined) is not isinstance(update, Combined):
        changes = yield from _compare_schema_with_parts_of_union(original, update)
        if changes is not None:
            return changes
    if type(original) is not type(update):
        accepted = isinstance(original, Never) or isinstance(update, Empty)
        if accepted or (original.connect_bytes and update.connect_bytes):
            return []
        return [SchemaChange("TYPE_CHANGED")]
    return [*compare_annotations(original, update), *(yield from _compare_schemas_of_same_kind(original, update))]


def _compare_schema_with_parts_of_union(
    original: Schema, update: Schema
) -> Generator[ComparisonQuestion, Any, list[ChangePart] | None]:
    """Return the changes if one schema is a union, and the other compatible with a part of it; None if it is not."""
    if isinstance(update, Combined):
        single, criterion, parts = len(update.parts) == 1, update.criterion, update.parts
        pairs = [(original, part) for part in parts]
        kind = "SUM_TYPE_EXTENDED" if criterion != "allOf" else ""
    else:
        assert isinstance(original, Combined)
        single, criterion, parts = len(original.parts) == 1, original.criterion, original.parts
        pairs = [(part, update) for part in parts]
        kind = "PRODUCT_TYPE_NARROWED" if criterion == "allOf" else ""
    if not single and not kind:
        return None
    for before, after in pairs:
        changes: SchemaChanges = yield before, after
        if changes.compatible:
            return [changes] if single else [changes, SchemaChange(kind)]
    return None


def _compare_schemas_of_same_kind(original: Schema, update: Schema) -> ComparisonSteps:
    """Return the changes of the keywords that two schemas of the same kind have, such as two arrays."""
    if isinstance(original, String) and isinstance(update, String):
        return compare_strings(original, update)
    if isinstance(original, Number) and isinstance(update, Number):
        return compare_numbers(original, update)
    if isinstance(original, Enum) and isinstance(update, Enum):
        return put_changes_under_key("enum", compare_sets("ENUM_ARRAY", original.values, update.values))
    if isinstance(original, Const) and isinstance(update, Const):
        return [] if original.value == update.value else [SchemaChange("ENUM_ARRAY_CHANGED", ("const",))]
    if isinstance(original, Combined) and isinstance(update, Combined):
        return (yield from _compare_combined_schemas(original, update))
    if isinstance(original, Not) and isinstance(update, Not):
        inner: SchemaChanges = yield (update.inner, original.inner)
        narrowed = inner.compatible
        return [SchemaChange("NOT_TYPE_NARROWED" if narrowed else "NOT_TYPE_EXTENDED", ("not",))]
    if isinstance(original, Object) and isinstance(update, Object):
        return (yield from _compare_objects(original, update))
    if isinstance(original, Array) and isinstance(update, Array):
        return (yield from _compare_arrays(original, update))
    return []


def _compare_combined_schemas(original: Combined, update: Combined) -> ComparisonSteps:
    """Return the changes of "allOf", "anyOf" or "oneOf": each part of the shorter needs one of the longer."""
    changes = compare_criteria(original, update)
    if changes == [SchemaChange("COMBINED_TYPE_CHANGED")]:
        return changes
    before, after = _drop_equal_parts(original.parts), _drop_equal_parts(update.parts)
    if len(before) != len(after):
        larger, verdict = (update, "EXTENDED") if len(before) < len(after) else (original, "NARROWED")
        changes.append(SchemaChange(f"{'PRODUCT_TYPE' if larger.criterion == 'allOf' else 'SUM_TYPE'}_{verdict}"))
    edges: dict[tuple[int, int], SchemaChanges] = {}
    for index, part in enumerate(before):
        for other_index, other in enumerate(after):
            between: SchemaChanges = yield part, other
            if between.compatible:
                edges[index, other_index] = between
    pairs: list[tuple[int, int]] = yield PartsMatchingQuestion(edges, len(before))
    for index, other_index in pairs:
        changes += put_changes_under_key(
            original.criterion, put_changes_under_key(str(index), [edges[index, other_index]])
        )
    if len(pairs) < min(len(before), len(after)):
        changes.append(SchemaChange("COMBINED_TYPE_SUBSCHEMAS_CHANGED"))
    return changes


def _compare_objects(original: Object, update: Object) -> ComparisonSteps:
    """Return the changes of an object."""
    return [
        *put_changes_under_key("required", compare_required(original, update)),
        *put_changes_under_key("properties", (yield from _compare_properties(original, update))),
        *put_changes_under_key("dependencies", (yield from _compare_dependencies(original, update))),
        *put_changes_under_key(
            "additionalProperties",
            (yield from _compare_additional_properties_or_items("ADDITIONAL_PROPERTIES", original, update)),
        ),
        *put_changes_under_key(
            "unevaluatedProperties",
            (
                yield from _compare_unevaluated_properties_or_items(
                    "UNEVALUATED_PROPERTIES", original.unevaluated, update.unevaluated
                )
            ),
        ),
        *compare_limits("maxProperties", "MAX_PROPERTIES", original.max_properties, update.max_properties),
        *compare_limits("minProperties", "MIN_PROPERTIES", original.min_properties, update.min_properties),
    ]


def _compare_properties(original: Object, update: Object) -> ComparisonSteps:
    """Return the changes of the properties."""
    changes: list[ChangePart] = []
    for name in unite_in_java_order(original.properties, update.properties):
        before, after = original.properties.get(name), update.properties.get(name)
        if before is not None and after is not None:
            between: list[ChangePart] = [(yield before, after)]
        elif before is not None:
            between = yield from _compare_removed_property(name, before, update)
        else:
            assert after is not None
            between = yield from _compare_added_property(name, after, original, name in update.required)
        changes += put_changes_under_key(name, between)
    return changes


def _compare_removed_property(name: str, before: Schema, update: Object) -> ComparisonSteps:
    """Return the changes of a property that was removed: the content model of the update counts."""
    if is_open_object(update):
        return [SchemaChange("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    covering = yield from _find_schema_of_other_properties(update, name)
    if covering is not None:
        return (yield from _compare_with_schema_of_other_properties_or_items("PROPERTY_REMOVED", before, covering))
    if isinstance(before, Never):
        return [SchemaChange("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [SchemaChange("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _compare_added_property(name: str, after: Schema, original: Object, required: bool) -> ComparisonSteps:
    """Return the changes of a property that was added: the content model of the original counts."""
    if is_open_object(original):
        if isinstance(after, Empty):
            return [SchemaChange("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")]
        return [SchemaChange(f"{get_kind_of_added_property(after, required)}_ADDED_TO_OPEN_CONTENT_MODEL")]
    covering = yield from _find_schema_of_other_properties(original, name)
    changes: list[ChangePart] = (
        []
        if covering is None
        else (yield from _compare_with_schema_of_other_properties_or_items("PROPERTY_ADDED", covering, after))
    )
    return [*changes, SchemaChange(f"{get_kind_of_added_property(after, required)}_ADDED_TO_UNOPEN_CONTENT_MODEL")]


def _compare_with_schema_of_other_properties_or_items(
    change_kind: str, before: Schema, after: Schema
) -> ComparisonSteps:
    """Return the changes from a property's or item's own schema to that of all others, or the other way round."""
    changes: SchemaChanges = yield before, after
    verdict = "IS" if changes.compatible else "NOT"
    return [changes, SchemaChange(f"{change_kind}_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")]


def _compare_dependencies(original: Object, update: Object) -> ComparisonSteps:
    """Return the changes of the dependencies."""
    changes: list[ChangePart] = []
    for name in unite_in_java_order(original.property_dependencies, update.property_dependencies):
        before, after = original.property_dependencies.get(name), update.property_dependencies.get(name)
        if before is None or after is None:
            kind = "DEPENDENCY_ARRAY_ADDED" if before is None else "DEPENDENCY_ARRAY_REMOVED"
            changes.append(SchemaChange(kind, (name,)))
        else:
            changes += put_changes_under_key(name, compare_sets("DEPENDENCY_ARRAY", before, after))
    for name in unite_in_java_order(original.schema_dependencies, update.schema_dependencies):
        earlier, later = original.schema_dependencies.get(name), update.schema_dependencies.get(name)
        if earlier is None or later is None:
            kind = "DEPENDENCY_SCHEMA_ADDED" if earlier is None else "DEPENDENCY_SCHEMA_REMOVED"
            changes.append(SchemaChange(kind, (name,)))
        else:
            changes += put_changes_under_key(name, [(yield earlier, later)])
    return changes


def _compare_additional_properties_or_items(
    kind: str, original: Object | Array, update: Object | Array
) -> ComparisonSteps:
    """Return the changes of what is allowed beyond the named properties, or the first items."""
    if original.additional != update.additional:
        return [SchemaChange(f"{kind}_{'ADDED' if update.additional else 'REMOVED'}")]
    if original.additional_schema is None and update.additional_schema is not None:
        return [SchemaChange(f"{kind}_NARROWED")]
    if original.additional_schema is not None and update.additional_schema is None:
        return [SchemaChange(f"{kind}_EXTENDED")]
    return [(yield (original.additional_schema, update.additional_schema))]


def _compare_unevaluated_properties_or_items(kind: str, before: Schema | None, after: Schema | None) -> ComparisonSteps:
    """Return the changes of "unevaluatedProperties" or "unevaluatedItems", whichever `kind` says."""
    if (before is None or isinstance(before, Empty)) and (after is None or isinstance(after, Empty)):
        return []
    if isinstance(before, Never) is not isinstance(after, Never):
        return [SchemaChange(f"{kind}_{'ADDED' if isinstance(before, Never) else 'REMOVED'}")]
    if before is None or isinstance(before, Empty):
        return [SchemaChange(f"{kind}_NARROWED")]
    if after is None or isinstance(after, Empty):
        return [SchemaChange(f"{kind}_EXTENDED")]
    return [(yield (before, after))]


def _compare_arrays(original: Array, update: Array) -> ComparisonSteps:
    """Return the changes of an array."""
    changes = put_changes_under_key("items", [(yield (original.items, update.items))])
    for index in range(max(len(original.first), len(update.first))):
        changes += put_changes_under_key(
            "items", put_changes_under_key(str(index), (yield from _compare_items(original, update, index)))
        )
    changes += put_changes_under_key(
        "additionalItems", (yield from _compare_additional_properties_or_items("ADDITIONAL_ITEMS", original, update))
    )
    changes += put_changes_under_key(
        "unevaluatedItems",
        (
            yield from _compare_unevaluated_properties_or_items(
                "UNEVALUATED_ITEMS", original.unevaluated, update.unevaluated
            )
        ),
    )
    changes += compare_limits("maxItems", "MAX_ITEMS", original.max_items, update.max_items)
    changes += compare_limits("minItems", "MIN_ITEMS", original.min_items, update.min_items)
    if original.unique != update.unique:
        changes.append(SchemaChange(f"UNIQUE_ITEMS_{'ADDED' if update.unique else 'REMOVED'}", ("uniqueItems",)))
    changes += compare_limits("maxContains", "MAX_CONTAINS", original.max_contains, update.max_contains)
    changes += compare_limits("minContains", "MIN_CONTAINS", original.min_contains, update.min_contains)
    return changes


def _compare_items(original: Array, update: Array, index: int) -> ComparisonSteps:
    """Return the changes of one of the first items."""
    before = original.first[index] if index < len(original.first) else None
    after = update.first[index] if index < len(update.first) else None
    if before is not None and after is not None:
        return [(yield before, after)]
    if before is not None:
        return (yield from _compare_removed_item(before, update))
    assert after is not None
    return (yield from _compare_added_item(after, original))


def _compare_removed_item(before: Schema, update: Array) -> ComparisonSteps:
    """Return the changes of an item that was removed: the content model of the update counts."""
    if is_open_array(update):
        return [SchemaChange("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL")]
    covering = get_schema_of_other_items(update)
    if covering is not None:
        return (yield from _compare_with_schema_of_other_properties_or_items("ITEM_REMOVED", before, covering))
    if isinstance(before, Never):
        return [SchemaChange("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    return [SchemaChange("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL")]


def _compare_added_item(after: Schema, original: Array) -> ComparisonSteps:
    """Return the changes of an item that was added: the content model of the original counts."""
    if is_open_array(original):
        if isinstance(after, Empty):
            return [SchemaChange("ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")]
        return [SchemaChange("ITEM_ADDED_TO_OPEN_CONTENT_MODEL")]
    covering = get_schema_of_other_items(original)
    if covering is not None:
        return (yield from _compare_with_schema_of_other_properties_or_items("ITEM_ADDED", covering, after))
    return [SchemaChange("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL")]


def _resolve_reference(schema: Schema) -> Schema:
    """Return the schema that a reference refers to."""
    return schema.resolve() if isinstance(schema, Reference) else schema


def _drop_equal_parts(parts: Iterable[Schema]) -> list[Schema]:
    """Return parts without those that are equal to one before."""
    return list({part.text: part for part in reversed(list(parts))}.values())[::-1]


def _find_schema_of_other_properties(schema: Object, name: str) -> Generator[ComparisonQuestion, Any, Schema | None]:
    """Return the schema of a property that is not named in the schema, or None."""
    by_pattern: Schema | None = (yield PatternSearch(schema.patterns, name)) if schema.patterns else None
    if by_pattern is not None or schema.additional_schema is not None or not schema.additional:
        return by_pattern or schema.additional_schema
    return None if isinstance(schema.unevaluated, Never) else schema.unevaluated
