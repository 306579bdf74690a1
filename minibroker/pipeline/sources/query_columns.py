"""The columns of a query: all that its options offer, or those of its own schema, with which it asks for fewer.

Spark does not prune the columns of a Python data source; `.schema("offset long, timestamp timestamp")` does.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from minibroker.pipeline.log_source import OptionError, Table
from minibroker.pipeline.options import ReadOptions
from minibroker.pipeline.schemas import BATCHES, CORRUPT, EXACT, MEASURED, RECORDS, chosen

TABLES: Final[dict[Table, pa.Schema]] = {"records": RECORDS, "batches": BATCHES}


def offered(options: ReadOptions) -> StructType:
    """Return the schema of a query without one of its own."""
    left_out = {*EXACT} if options.include_headers else {*EXACT, "headers"}
    if options.mode != "PERMISSIVE":
        left_out.add(CORRUPT)
    if not options.measure_one_in:
        left_out.update(MEASURED)
    table = TABLES[options.table]
    return from_arrow_schema(chosen(table, [name for name in table.names if name not in left_out]))


def columns_of(schema: StructType, options: ReadOptions) -> tuple[str, ...]:
    """Return the names of a query's columns. Raises `OptionError` for unknown ones, and for other types."""
    table = from_arrow_schema(TABLES[options.table])
    types = {column.name: column.dataType for column in table.fields}
    for column in schema.fields:
        if column.name not in types:
            raise OptionError(f"schema: {options.table} has no column {column.name}; there are {', '.join(types)}")
        expected = types[column.name]
        if column.dataType.simpleString() != expected.simpleString():
            given = column.dataType.simpleString()
            raise OptionError(f"schema: column {column.name} is {expected.simpleString()}, not {given}")
        if not column.nullable or column.dataType != expected:
            raise OptionError(f"schema: column {column.name} must be nullable, and so must its elements")
    for name in set(MEASURED).intersection(schema.names) if not options.measure_one_in else ():
        raise OptionError(f"schema: column {name} exists only with the option measure")
    if CORRUPT in schema.names and options.mode != "PERMISSIVE":
        raise OptionError(f"schema: column {CORRUPT} exists only with mode=PERMISSIVE")
    if len(set(schema.names)) != len(schema.names) or not schema.names:
        raise OptionError("schema: at least one column is needed, each only once")
    return tuple(schema.names)
