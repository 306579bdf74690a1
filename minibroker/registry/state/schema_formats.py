"""The formats of schemas by Confluent's names, and the schemas that were parsed lately."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Final, TypeVar, cast

from minibroker.registry.formats.comparing_budget import ComparingBudget, ComparisonTooLarge
from minibroker.registry.formats.schema import Format, InvalidSchema, ParsedSchema, Reference
from minibroker.registry.state.coroutine_slices import ClientLeft
from minibroker.registry.state.qualified_subjects import qualify_subject_within_context
from minibroker.registry.state.registry_errors import Errors, describe_missing_reference
from minibroker.registry.state.schema_records import StoredSchema, compute_guid
from minibroker.registry.state.schema_state import SchemaState

Result = TypeVar("Result")

FORMATS: Final = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
CACHED: Final = 1000  # as many as Confluent's `schema.cache.size`
CACHED_CHARACTERS: Final = 8 << 20  # of their texts; parsed, they take about ten times as much
LARGE_CHARACTERS: Final = 4 << 10  # parsing more than this may take the loop's time, so a thread does it
DEPTH_MAX: Final = 100  # of references to references
RESOLVED_CHARACTERS_MAX: Final = 8 << 20  # of all that a schema refers to; a name for the same text counts again

ParseKey = tuple[str, str, tuple[tuple[str, str], ...], bool]


class SchemaFormats:
    """Parses schemas, and compares them."""

    def __init__(self) -> None:
        self._parsed: dict[ParseKey, ParsedSchema] = {}
        self._characters = 0  # of the texts in `_parsed`
        self._comparing = asyncio.Lock()

    async def parse_schema(
        self,
        state: SchemaState,
        kind: str,
        text: str,
        references: tuple[Reference, ...],
        subject: str,
        *,
        stored: bool = False,
        check_defaults: bool = False,
    ) -> ParsedSchema:
        """Parse a schema of a subject. Raises RegistryError.

        One that is `stored` may refer to versions that were deleted since. Avro's defaults are not checked unasked.
        """
        if kind not in FORMATS:
            raise Errors.INVALID_SCHEMA.make_error(kind=kind, reason=f"Invalid schema type {kind}")
        try:
            resolved = resolve_references(state, references, subject, deleted=stored)
            return await self._parse_cached(kind, text, resolved, check_defaults)
        except InvalidSchema as error:
            raise Errors.INVALID_SCHEMA.make_error(kind=kind, reason=str(error)) from None

    async def parse_stored_schema(self, state: SchemaState, schema: StoredSchema) -> ParsedSchema:
        """Parse a schema that is stored. Raises RegistryError."""
        return await self.parse_schema(state, schema.kind, schema.text, schema.references, schema.subject, stored=True)

    async def _parse_cached(
        self, kind: str, text: str, resolved_references: Mapping[str, str], check_defaults: bool
    ) -> ParsedSchema:
        """Return a parsed schema, from the cache or else parsed now, in a thread if it is large."""
        key = kind, text, tuple(resolved_references.items()), check_defaults and kind == "AVRO"
        found = self._parsed.get(key)
        if found is None:
            # Few defaults may take long to check.
            size = LARGE_CHARACTERS + 1 if key[3] else _count_cached_characters(key)
            found = await _run_in_thread_if_large(
                partial(parse_schema, kind, text, resolved_references, check_defaults=key[3]), size
            )
        self._cache_parsed(key, found)
        return found

    def _cache_parsed(self, key: ParseKey, parsed: ParsedSchema) -> None:
        """Cache a schema as the one used last, and drop those used first if they are too many."""
        if self._parsed.pop(key, None) is None:
            self._characters += _count_cached_characters(key)
        self._parsed[key] = parsed
        while len(self._parsed) > CACHED or self._characters > CACHED_CHARACTERS:
            oldest = next(iter(self._parsed))
            del self._parsed[oldest]
            self._characters -= _count_cached_characters(oldest)

    async def normalize_text(self, kind: str, parsed: ParsedSchema) -> str:
        """Return the normalized text. Raises RegistryError."""
        try:
            return await _run_in_thread_if_large(partial(parsed.get_normalized_text), len(parsed.canonical))
        except InvalidSchema as error:
            raise Errors.INVALID_SCHEMA.make_error(kind=kind, reason=str(error)) from None

    async def format_text(self, kind: str, parsed: ParsedSchema, format: str) -> str:
        """Return the text in one of Confluent's formats. Raises RegistryError."""
        try:
            return await asyncio.to_thread(parsed.get_text_in_format, format)
        except InvalidSchema as error:
            raise Errors.INVALID_SCHEMA.make_error(kind=kind, reason=str(error)) from None

    async def get_comparison_text(self, parsed: ParsedSchema, schema: StoredSchema) -> str:
        """Return a text that is equal for schemas that differ only in the order of their parts, and in contracts."""
        try:
            return await _run_in_thread_if_large(partial(_compute_comparison_guid, parsed, schema), len(schema.text))
        except InvalidSchema as error:
            raise Errors.INVALID_SCHEMA.make_error(kind=schema.kind, reason=str(error)) from None

    async def list_incompatibilities(
        self,
        kind: str,
        reader: ParsedSchema,
        writer: ParsedSchema,
        *,
        lenient: bool = False,
        wait_until_client_left: ClientLeft | None = None,
    ) -> list[str]:
        """Return why a schema cannot read what another one of its kind has written; only JSON Schema can be lenient.

        A thread compares them, one pair after the other: each part with each other part, even small ones may take
        long, and threads hold each other and the loop. Raises RegistryError if it takes too long, and once
        `wait_until_client_left` returns.
        """
        budget, more = ComparingBudget(), {"lenient": True} if lenient and kind == "JSON" else {}
        compare = partial(_get_format(kind).list_incompatibilities, reader, writer, budget, **more)
        async with self._comparing, _stop_budget_when_left(wait_until_client_left, budget):
            try:
                return await asyncio.to_thread(compare)
            except ComparisonTooLarge as error:
                raise Errors.TOO_MUCH_COMPARING.make_error(reason=str(error)) from None


@asynccontextmanager
async def _stop_budget_when_left(
    wait_until_client_left: ClientLeft | None, budget: ComparingBudget
) -> AsyncIterator[None]:
    """Abandon a comparison when `wait_until_client_left` returns, or when it is cancelled: its thread would go on."""
    leaving = None if wait_until_client_left is None else asyncio.ensure_future(wait_until_client_left())
    if leaving is not None:
        leaving.add_done_callback(lambda _: budget.stop_at_next_step())
    try:
        yield
    except asyncio.CancelledError:
        budget.stop_at_next_step()
        raise
    finally:
        if leaving is not None:
            leaving.cancel()


def _count_cached_characters(key: ParseKey) -> int:
    """Return how many characters the texts of a cached schema and its references have."""
    return len(key[1]) + sum(len(text) for _, text in key[2])


def parse_schema(
    kind: str, text: str, resolved_references: Mapping[str, str], *, check_defaults: bool = False
) -> ParsedSchema:
    """Parse a schema with what it refers to; only Avro's defaults can be checked.

    Raises InvalidSchema, and ImportError if the format's library is missing.
    """
    more = {"check_defaults": True} if check_defaults else {}
    parsed = _get_format(kind).parse(text, resolved_references, **more)
    try:
        parsed.canonical.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("it has half of a surrogate pair, which is no text") from None
    return parsed


def _get_format(kind: str) -> Format:
    return cast(Format, import_module(f"minibroker.registry.formats.{FORMATS[kind]}"))


async def _run_in_thread_if_large(work: partial[Result], size: int) -> Result:
    """Do work on texts of `size` characters, in a thread if there are many, so that the loop goes on."""
    return work() if size <= LARGE_CHARACTERS else await asyncio.to_thread(work)


def resolve_references(
    state: SchemaState, references: tuple[Reference, ...], subject: str, *, deleted: bool = True
) -> dict[str, str]:
    """Return the texts that references stand for by their names, each after those that it refers to.

    With `deleted`, deleted versions count. Raises InvalidSchema.
    """
    texts: dict[str, str] = {}
    visited: set[str] = set()
    characters = 0

    def resolve_all(references: tuple[Reference, ...], parent: str, depth: int) -> None:
        nonlocal characters
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"References are more than {DEPTH_MAX} deep")
        for reference in references:
            schema = state.find_version(
                qualify_subject_within_context(parent, reference.subject), reference.version, deleted
            )
            if schema is None:
                raise InvalidSchema(describe_missing_reference(reference))
            if reference.name not in visited:
                visited.add(reference.name)
                characters += len(schema.text)
                if characters > RESOLVED_CHARACTERS_MAX:
                    raise InvalidSchema(f"References are to more than {RESOLVED_CHARACTERS_MAX:,} characters")
                resolve_all(schema.references, schema.subject, depth + 1)
                texts[reference.name] = schema.text

    resolve_all(references, subject, 0)
    return texts


def _compute_comparison_guid(parsed: ParsedSchema, schema: StoredSchema) -> str:
    """Return the GUID of a schema's comparable text and sorted references, which is equal for equal schemas."""
    return compute_guid(parsed.get_comparable_text(), sort_references(schema.references))


def sort_references(references: tuple[Reference, ...]) -> tuple[Reference, ...]:
    """Return references as Confluent normalizes them."""
    return tuple(sorted({*references}, key=lambda each: (each.subject, each.version)))
