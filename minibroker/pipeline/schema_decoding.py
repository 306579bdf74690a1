"""Decodes keys and values by the schemas that they name, as Confluent's serializers write them.

from minibroker.pipeline.schema_decoding import decoded
decoded(records, "http://127.0.0.1:8081").select("value_decoded", "value_error")

The schemas are those of a registry, or of the topic `_schemas` of a log. What is found stays for the life of a process.
What is not there is looked for once in each task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import pyarrow as pa

from minibroker.pipeline.log_opening import read_in_this_process
from minibroker.pipeline.log_source import OptionError, PipelineError
from minibroker.pipeline.options import ReadOptions, parse_options
from minibroker.protocol.records.record import Record
from minibroker.registry.decoding import (
    Decoder,
    DecodingError,
    GivenDecoder,
    MissingLibrary,
    NoSchema,
    SchemaSource,
    StateSource,
    WireSchema,
    format_json,
)
from minibroker.registry.registry_client import RegistryClient, RequestFailed
from minibroker.registry.state.schema_state import SchemaState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC: Final = "_schemas"
COLUMNS_OF_SCHEMAS: Final = ("offset", "key", "value")
NO_TIMESTAMP: Final = -1
PLACES_MAX: Final = 8  # whose schemas a process keeps


class GivenSchema(NamedTuple):
    """The schema of data that names none. `kind` is "AVRO", "JSON" or "PROTOBUF", whose first message the data is."""

    kind: str
    text: str


SchemaLocation = (
    str | tuple[tuple[str, str], ...] | GivenSchema
)  # the URL of a registry, the options of a reader, or a schema


class RegistryUnavailable(PipelineError):
    """A registry does not answer, or refuses to. The message is one line."""


class RegistrySchemas:
    """Finds schemas in a registry with Confluent's API."""

    def __init__(self, client: SchemaSource) -> None:
        self._client = client
        self._missing: set[int | str] = set()

    def begin_task(self) -> None:
        """Forget which schemas the registry did not have, so that a new task asks for them again."""
        self._missing.clear()

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, RegistryUnavailable."""
        if id_or_guid in self._missing:
            raise LookupError(id_or_guid)
        try:
            return self._client.find_schema(id_or_guid)
        except LookupError:
            self._missing.add(id_or_guid)
            raise
        except RequestFailed as error:
            raise RegistryUnavailable(str(error)) from None


class TopicSchemas:
    """Finds schemas in the topic `_schemas`, which a task reads again at most once, if one is not there."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._known: StateSource | None = None
        self._is_fresh = False

    def begin_task(self) -> None:
        """Read the topic again as soon as a schema is not known."""
        self._is_fresh = False

    def find_schema(self, id_or_guid: int | str) -> WireSchema:
        """Return the schema with an id or a GUID. Raises LookupError, InvalidSchema, what reading a log raises."""
        if self._known is not None:
            try:
                return self._known.find_schema(id_or_guid)
            except LookupError:
                if self._is_fresh:
                    raise
        self._known, self._is_fresh = StateSource(_read_state(self._options)), True
        return self._known.find_schema(id_or_guid)


def _read_state(options: ReadOptions) -> SchemaState:
    state = SchemaState()
    for batch in read_in_this_process(options, COLUMNS_OF_SCHEMAS):
        for offset, key, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            # As the registry does, skip what is none of its records: what named it has no schema then.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                state.apply_record(Record(offset, NO_TIMESTAMP, key, value))
    return state


@lru_cache(PLACES_MAX)
def get_cached_decoder(location: SchemaLocation) -> tuple[Decoder | GivenDecoder, Callable[[], None]]:
    """Return a decoder that keeps parsed schemas for this process, and what to call when a task begins.

    Raises `OptionError`, `DecodingError`.
    """
    if isinstance(location, GivenSchema):
        return GivenDecoder(*location), lambda: None
    source = (
        RegistrySchemas(RegistryClient(location))
        if isinstance(location, str)
        else TopicSchemas(make_topic_options(dict(location)))
    )
    return Decoder(source), source.begin_task


def make_topic_options(options: Mapping[str, str]) -> ReadOptions:
    """Return the options that read all of `_schemas` from the log that `options` name. Raises `OptionError`."""
    return parse_options({**options, "subscribe": TOPIC}, "records", "batch")


Unknown = Literal["keep", "fail"]

COLUMNS: Final = ("key", "value")
HEADERS: Final = "headers"


class CannotDecode(PipelineError):
    """A record's schema cannot be had, or a library is missing. The message is one line."""


def decoded(
    records: DataFrame,
    schemas: str | Mapping[str, str] | GivenSchema,
    *,
    column: str = "value",
    unknown: Unknown = "keep",
) -> DataFrame:
    """Return records with two columns more: `value_decoded` and, where that is impossible, the reason, `value_error`.

    `schemas` is the URL of a registry, which may have a name and a password, or where a log with the topic `_schemas`
    is, as a reader's options say it, such as `{"path": "minibroker-data"}`, or the schema of data that names none.
    `column` may also be "key". What is decoded is JSON. Both columns are null where there is nothing to decode. GUIDs
    in headers count if the records have the column `headers`. `unknown="fail"` fails the query where a record's schema
    is unknown or invalid; a registry that does not answer always fails it. Raises `OptionError`.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    _check_columns(records, column, unknown)
    added = [StructField(name, StringType()) for name in (f"{column}_decoded", f"{column}_error")]
    task = DecodingTask(_make_schema_location(schemas), column, unknown)
    return records.mapInArrow(task, StructType([*records.schema.fields, *added]))


def _check_columns(records: DataFrame, column: str, unknown: str) -> None:
    """Raise `OptionError` for arguments of `decoded` that are not valid for these records."""
    if column not in COLUMNS:
        raise OptionError(f"column is one of {', '.join(COLUMNS)}, and not {column!r}")
    if unknown not in ("keep", "fail"):
        raise OptionError(f"unknown is keep or fail, and not {unknown!r}")
    types = dict(records.dtypes)
    if types.get(column) != "binary":
        raise OptionError(f"the records have no column {column} of type binary")
    taken = {f"{column}_decoded", f"{column}_error"} & types.keys()
    if taken:
        raise OptionError(f"the records have a column {', '.join(sorted(taken))} already")


def _make_schema_location(schemas: str | Mapping[str, str] | GivenSchema) -> SchemaLocation:
    """Return `schemas` in a form that can be a key of a cache. Raises `OptionError` if it is not valid."""
    if isinstance(schemas, Mapping):
        make_topic_options(schemas)
        return tuple(sorted(schemas.items()))
    if isinstance(schemas, GivenSchema):
        try:
            get_cached_decoder(schemas)
        except DecodingError as error:
            raise OptionError(f"the given schema: {error}") from None
    return schemas


@dataclass(frozen=True, slots=True)
class DecodingTask:
    """Decodes a column of rows, in a task of Spark."""

    place: SchemaLocation = field(repr=False)  # a registry's URL may contain a password
    column: str
    unknown: Unknown

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with two columns more. Raises `CannotDecode`, `RegistryUnavailable`, what reading raises."""
        decoder, begin_task = get_cached_decoder(self.place)
        begin_task()
        for batch in batches:
            yield self._add_decoded_columns(batch, decoder)

    def _add_decoded_columns(self, batch: pa.RecordBatch, decoder: Decoder | GivenDecoder) -> pa.RecordBatch:
        names = batch.schema.names
        data = batch.column(names.index(self.column)).to_pylist()
        headers = batch.column(names.index(HEADERS)).to_pylist() if HEADERS in names else [None] * len(data)
        pairs = [self._decode_text_or_reason(decoder, *each) for each in zip(data, headers, strict=True)]
        added = [pa.array(column, pa.string()) for column in (zip(*pairs, strict=True) if pairs else ((), ()))]
        return pa.RecordBatch.from_arrays(
            [*batch.columns, *added], [*names, f"{self.column}_decoded", f"{self.column}_error"]
        )

    def _decode_text_or_reason(
        self, decoder: Decoder | GivenDecoder, data: bytes | None, headers: list[dict[str, Any]] | None
    ) -> tuple[str | None, str | None]:
        """Return a value as JSON, or why there is none; nothing for null. Raises `CannotDecode`."""
        if data is None:
            return None, None
        named = [(each["key"], each["value"]) for each in headers or ()]
        try:
            return format_json(decoder.decode(data, named, is_key=self.column == "key")), None
        except MissingLibrary as error:
            raise CannotDecode(str(error)) from None
        except NoSchema as error:
            if self.unknown == "fail":
                raise CannotDecode(f"a {self.column} cannot be decoded: {error}") from None
            return None, str(error)
        except DecodingError as error:
            return None, str(error)
