"""Decodes keys and values by the schemas that they name, as Confluent's serializers write them.

from minibroker.pipeline.schema_decoding import decoded
decoded(records, "http://127.0.0.1:8081").select("value_decoded", "value_error")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

from minibroker.pipeline.log_source import OptionError, PipelineError
from minibroker.pipeline.plain_errors import iterate_with_plain_errors
from minibroker.pipeline.schema_sources import GivenSchema, SchemaLocation, get_cached_decoder, make_topic_options
from minibroker.registry.decoding import Decoder, DecodingError, GivenDecoder, MissingLibrary, NoSchema, format_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Unknown = Literal["keep", "fail"]

COLUMNS: Final = ("key", "value")
HEADERS: Final = "headers"
MISFIT: Final = "_misfit"
DOES_NOT_FIT: Final = "it does not fit the given schema"


class CannotDecode(PipelineError):
    """A record's schema cannot be had, or a library is missing. The message is one line."""


def decoded(
    records: DataFrame,
    schemas: str | Mapping[str, str] | GivenSchema,
    *,
    column: str = "value",
    schema: str | StructType | None = None,
    unknown: Unknown = "keep",
) -> DataFrame:
    """Return records with two columns more: `value_decoded` and, where that is impossible, the reason, `value_error`.

    `schemas` is the URL of a registry, which may have a name and a password, or where a log with the topic `_schemas`
    is, as a reader's options say it, such as `{"path": "minibroker-data"}`, or the schema of data that names none.
    `column` may also be "key". What is decoded is JSON, or with `schema` a struct. Both columns are null where there is
    nothing to decode. GUIDs in headers count if the records have the column `headers`. With `unknown="fail"`, a record
    whose schema is unknown or invalid fails the query; a registry that does not answer always does. Raises
    `OptionError`.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    _check_columns(records, column, unknown)
    value, reason = f"{column}_decoded", f"{column}_error"
    added = [StructField(name, StringType()) for name in (value, reason)]
    task = DecodingTask(_make_schema_location(schemas), column, unknown)
    found = records.mapInArrow(task, StructType([*records.schema.fields, *added]))
    return found if schema is None else _replace_json_by_structs(found, value, reason, schema)


def _check_columns(records: DataFrame, column: str, unknown: str) -> None:
    """Raise `OptionError` for what cannot be done."""
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
    """Return where schemas are in a form that has a hash. Raises `OptionError` for what can be seen to be wrong."""
    if isinstance(schemas, Mapping):
        make_topic_options(schemas)
        return tuple(sorted(schemas.items()))
    if isinstance(schemas, GivenSchema):
        try:
            get_cached_decoder(schemas)
        except DecodingError as error:
            raise OptionError(f"the given schema: {error}") from None
    return schemas


def _replace_json_by_structs(
    rows: DataFrame, value_column: str, reason_column: str, schema: str | StructType
) -> DataFrame:
    """Return the rows with structs instead of JSON; what is no such struct gets a reason."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    wanted = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise OptionError(f"schema has the columns of a struct, and is not {schema!r}")
    read = StructType([*wanted.fields, StructField(MISFIT, StringType())])
    parsed = rows.withColumn(value_column, F.from_json(value_column, read, {"columnNameOfCorruptRecord": MISFIT}))
    misfit = F.col(f"{value_column}.{MISFIT}").isNotNull()
    told = parsed.withColumn(reason_column, F.when(misfit, DOES_NOT_FIT).otherwise(F.col(reason_column)))
    return told.withColumn(value_column, F.when(F.col(reason_column).isNull(), F.col(value_column).dropFields(MISFIT)))


@dataclass(frozen=True, slots=True)
class DecodingTask:
    """Decodes a column of rows, in a task of Spark."""

    place: SchemaLocation = field(repr=False)  # a registry's URL may contain a password
    column: str
    unknown: Unknown

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows with two columns more. Raises `CannotDecode`, `RegistryUnavailable`, what reading raises."""
        return iterate_with_plain_errors(self._decode_batches(batches))

    def _decode_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
