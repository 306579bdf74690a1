"""Adds decoded values to the rows of an archive: a column of structs, whose fields are those of the values' schemas.

The types follow from what the decoder returns for a schema, so that a field has the same type in each run. A field that
a later schema adds is added to the column; tables of Iceberg and Delta get it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Final

import pyarrow as pa

from minibroker.pipeline.archiving.archive_tables import ArchiveError
from minibroker.pipeline.schema_decoding import SchemaLocation, get_cached_decoder
from minibroker.registry.decoding import Decoder, DecodingError, GivenDecoder, MissingLibrary, format_json

DECODED: Final = "value_decoded"
ERROR: Final = "value_error"
FIELDS_MAX: Final = 500  # of a struct: a map's keys would be as many fields
ALL_FIELDS_MAX: Final = 5000  # of all structs inside of each other
NESTED_MAX: Final = 20  # Delta reads the JSON of a schema up to 128 levels, and each of ours takes some
EMPTY: Final = pa.struct([])


@dataclass(frozen=True, slots=True)
class ValueDecoder:
    """Decodes the values of rows by the schemas of a place: a registry, or a log with `_schemas`. It is pickled."""

    place: SchemaLocation = field(repr=False)  # a registry's URL may contain a password

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with two columns more, of one type in all of them, which are kept in memory until it is known.

        Raises `ArchiveError` for values of one field that have no common type, and without a library that decodes.
        """
        decoder, begin_task = get_cached_decoder(self.place)
        begin_task()
        shape = SeenStructFields()
        decoded = [(batch, *_decode_values(decoder, batch, shape)) for batch in rows]
        if not decoded:
            return
        try:
            schemas = [pa.schema([(DECODED, values.type)]) for _, values, _ in decoded]
            whole = _make_writable_type(pa.unify_schemas(schemas, promote_options="permissive").field(0).type)
        except pa.ArrowException as error:
            raise ArchiveError(f"the decoded values have no common type: {error}") from None
        for batch, values, reasons in decoded:
            if len(whole):  # a file has no struct without a field
                batch = batch.append_column(DECODED, values.cast(whole))
            yield batch.append_column(ERROR, reasons)


class SeenStructFields:
    """The fields that values have had so far. Who writes values chooses their names, so there is a limit."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], set[str]] = {}
        self._count = 0

    def try_add_fields(self, path: tuple[str, ...], names: Set[str]) -> bool:
        """Add names to the fields seen at a path. Return False, and add none, if they would be too many."""
        known = self._known.setdefault(path, set())
        new = names - known
        if len(known) + len(new) > FIELDS_MAX or self._count + len(new) > ALL_FIELDS_MAX:
            return False
        known |= new
        self._count += len(new)
        return True


def _decode_values(
    decoder: Decoder | GivenDecoder, batch: pa.RecordBatch, shape: SeenStructFields
) -> tuple[pa.Array, pa.Array]:
    """Return two columns: the decoded values as structs, and why others cannot be decoded. Both have null for null."""
    values: list[Any] = []
    reasons: list[str | None] = []
    for data, headers in zip(batch.column("value").to_pylist(), batch.column("headers").to_pylist(), strict=True):
        value, reason = None, None
        try:
            found = decoder.decode(data, [(each["key"], each["value"]) for each in headers or ()])
            value = _make_column_value(
                found if found is None or isinstance(found, dict) else {"value": found}, shape, ()
            )
        except MissingLibrary as error:
            raise ArchiveError(str(error)) from None
        except DecodingError as error:
            reason = str(error)
        values.append(value)
        reasons.append(reason)
    return _make_struct_array(values), pa.array(reasons, pa.string())


def _make_struct_array(values: list[Any]) -> pa.Array:
    """Return values as an Arrow array of structs."""
    try:
        return pa.array(values, None if any(values) else EMPTY)
    except (pa.ArrowException, OverflowError) as error:
        raise ArchiveError(f"the decoded values have no common type: {error}") from None


def _make_column_value(value: Any, seen_fields: SeenStructFields, path: tuple[str, ...]) -> Any:
    """Return a value with only types that columns have; structs with too many fields become JSON, others text.

    Raises `DecodingError` for one that is nested too deep.
    """
    if len(path) > NESTED_MAX:
        raise DecodingError(f"it is nested deeper than {NESTED_MAX} levels")
    if isinstance(value, dict):
        named = {str(name): each for name, each in value.items()}
        if not seen_fields.try_add_fields(path, named.keys()):
            return {"json": format_json(value)}
        return {name: _make_column_value(each, seen_fields, (*path, name)) for name, each in named.items()}
    if isinstance(value, list | tuple):
        return [_make_column_value(each, seen_fields, (*path, "")) for each in value]
    is_plain = value is None or isinstance(value, bool | int | float | str | bytes | datetime | date)
    return value if is_plain else str(value)


def _make_writable_type(type: pa.DataType) -> pa.DataType:
    """Return a type without what no file has: null types, of which a later value says more, and structs of nothing."""
    if pa.types.is_struct(type):
        fields = [pa.field(each.name, _make_writable_type(each.type)) for each in type]
        return pa.struct([each for each in fields if each.type != EMPTY and not pa.types.is_null(each.type)])
    if pa.types.is_list(type):
        inner = _make_writable_type(type.value_type)
        return pa.null() if inner == EMPTY or pa.types.is_null(inner) else pa.list_(inner)
    return type
