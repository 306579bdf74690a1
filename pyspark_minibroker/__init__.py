"""Where Spark finds `format("minibroker")` by itself.

It imports every module `pyspark_*` for its `DefaultSource` whenever it looks up any data source, so that an error here
would fail everybody's queries: where the source cannot be imported, as without the extra, there is no `DefaultSource`.
"""

from contextlib import suppress

with suppress(Exception):
    from minibroker.pipeline.sources.tables import RecordsSource as DefaultSource

    __all__ = ["DefaultSource"]
