"""A data source that takes filters on `partition`, as ours would if Spark's pushdown of filters gave right results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition


class PushingReader(DataSourceReader):
    """Ten rows in each of three partitions."""

    def __init__(self) -> None:
        self._wanted = [0, 1, 2]

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read only the partition that a filter names."""
        for each in filters:
            if isinstance(each, EqualTo) and each.attribute == ("partition",):
                self._wanted = [each.value]
            else:
                yield each

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in self._wanted]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int]]:
        return iter([(partition.value, offset) for offset in range(10)])


class PushingSource(DataSource):
    """`format("pushing")`."""

    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "partition int, offset int"

    def reader(self, schema: object) -> PushingReader:
        return PushingReader()
