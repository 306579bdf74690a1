"""The readers as Spark calls them, without Spark: planned in one process, pickled, read in another."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from minibroker.pipeline.log_source import DataLoss, OptionError, ReadRequest, TopicPartition
from minibroker.pipeline.options import parse_options
from minibroker.pipeline.sources import tables
from minibroker.pipeline.sources.tables import BatchReader, StreamReader
from tests.pipeline.stand_in import StandIn

REQUEST = ReadRequest("records", ("offset", "topic"))


def batch_reader(log: StandIn, **options: str) -> BatchReader:
    return BatchReader(
        parse_options({"path": "/", "subscribepattern": "."} | options, "records", "batch"), REQUEST, log
    )


def stream_reader(log: StandIn, **options: str) -> StreamReader:
    options = {"path": "/", "subscribepattern": ".", "startingoffsets": "earliest"} | options
    return StreamReader(parse_options(options, "records", "stream"), REQUEST, log)


def read(reader: BatchReader | StreamReader, partitions: Sequence[InputPartition]) -> list[tuple[str, int]]:
    """The rows as tasks read them: each with copies of its own."""
    copies = [pickle.loads(pickle.dumps((reader, partition))) for partition in partitions]
    batches = [batch for copy, partition in copies for batch in copy.read(partition)]
    assert all(batch.schema.names == ["offset", "topic"] for batch in batches)
    return sorted((row["topic"], row["offset"]) for batch in batches for row in batch.to_pylist())


def rows(topic: str, *offsets: int) -> list[tuple[str, int]]:
    return [(topic, offset) for offset in offsets]


def test_a_batch_reader_reads_its_planned_splits() -> None:
    log = StandIn({"a-0": (2, 5), "b-0": (0, 1), "c-0": (3, 3)})
    reader = batch_reader(log)
    partitions = reader.partitions()
    assert log.closed == 1  # Spark keeps the reader, but not the process that planned
    log.logs.clear()
    assert read(reader, partitions) == [*rows("a", 2, 3, 4), *rows("b", 0)]


def test_an_empty_input_is_planned_without_splits_and_read_as_no_rows() -> None:
    reader = batch_reader(StandIn({"a-0": (3, 3)}))
    assert reader.partitions() == []
    assert read(reader, [InputPartition(None)]) == []


@pytest.mark.parametrize("module", ["pyspark.daemon", "theirs", None])
def test_imported_modules_of_a_spark_worker_are_frozen_once(
    module: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen: list[str] = []
    monkeypatch.setattr(tables.gc, "freeze", lambda: frozen.append("all"))
    spec = None if module is None else ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    tables.freeze_existing_objects_for_gc.cache_clear()
    reader = batch_reader(StandIn({"a-0": (2, 5), "b-0": (0, 1)}))
    read(reader, reader.partitions())
    tables.freeze_existing_objects_for_gc.cache_clear()
    assert frozen == (["all"] if module == "pyspark.daemon" else [])


def test_a_task_releases_its_resources_even_if_not_read_completely() -> None:
    log = StandIn({"a-0": (0, 9)})
    reader = batch_reader(log)
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert log.closed == 2


def test_the_batch_reader_lets_spark_push_down_no_filter() -> None:
    assert "pushFilters" not in vars(BatchReader)


def test_a_batch_query_that_starts_at_deleted_offsets_fails_when_planned() -> None:
    with pytest.raises(DataLoss):
        batch_reader(StandIn({"a-0": (5, 9)}), startingoffsets='{"a": {"0": 1}}').partitions()


def test_a_stream_continues_from_batch_to_batch() -> None:
    log = StandIn({"a-0": (0, 3)})
    reader = stream_reader(log)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (start, end) == ({"a": {"0": 0}}, {"a": {"0": 3}})
    assert read(reader, reader.partitions(start, end)) == rows("a", 0, 1, 2)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    log.logs.update(StandIn({"a-0": (0, 5), "b-0": (0, 1)}).logs)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, reader.partitions(end, later)) == [*rows("a", 3, 4), *rows("b", 0)]
    assert reader.reportLatestOffset() == later


def test_a_deleted_topic_fails_a_stream_unless_data_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    log = StandIn({"a-0": (0, 3), "b-0": (0, 2)}, named=("a", "b"))
    start = stream_reader(log).initialOffset()
    del log.logs[TopicPartition("b", 0)]
    with pytest.raises(DataLoss, match="there is no b; failOnDataLoss=false reads what is left"):
        stream_reader(log).latestOffset(start, ReadAllAvailable())
    lenient = stream_reader(log, failondataloss="false")
    end = lenient.latestOffset(start, ReadAllAvailable())
    assert end == {"a": {"0": 3}}
    assert read(lenient, lenient.partitions(start, end)) == rows("a", 0, 1, 2)
    assert caplog.messages == ["b-0 is gone"]


def test_the_initial_offset_of_a_stream_is_looked_up_only_once() -> None:
    log = StandIn({"a-0": (0, 3)})
    reader = stream_reader(log, startingoffsets="latest")
    first = reader.initialOffset()
    log.logs.update(StandIn({"a-0": (0, 9)}).logs)
    assert reader.initialOffset() == first == {"a": {"0": 3}}


def test_a_stream_whose_starting_timestamp_has_no_record_fails() -> None:
    with pytest.raises(OptionError):
        stream_reader(StandIn({"a-0": (0, 3)}), startingtimestamp="5000").initialOffset()


def test_batches_of_a_stream_are_limited_by_max_offsets_per_trigger() -> None:
    reader = stream_reader(StandIn({"a-0": (0, 30), "b-0": (0, 10)}), maxoffsetspertrigger="8")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(8)
    assert reader.latestOffset(reader.initialOffset(), limit) == {"a": {"0": 6}, "b": {"0": 2}}
    assert reader.reportLatestOffset() == {"a": {"0": 30}, "b": {"0": 10}}


def test_a_trigger_that_reads_all_available_ignores_the_limit_of_offsets() -> None:
    reader = stream_reader(StandIn({"a-0": (0, 30)}), maxoffsetspertrigger="8")
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == {"a": {"0": 30}}


def test_available_now_reads_up_to_the_end_at_its_start() -> None:
    log = StandIn({"a-0": (0, 5)})
    reader = stream_reader(log, maxoffsetspertrigger="3", minoffsetspertrigger="3")
    reader.prepareForTriggerAvailableNow()
    log.logs.update(StandIn({"a-0": (0, 50), "b-0": (0, 7)}).logs)
    ends = [reader.latestOffset({"a": {"0": start}}, reader.getDefaultReadLimit()) for start in (0, 3, 5)]
    assert ends == [{"a": {"0": 3}}, {"a": {"0": 5}}, {"a": {"0": 5}}]


def test_available_now_of_an_empty_log_reads_nothing() -> None:
    log = StandIn({})
    reader = stream_reader(log)
    reader.prepareForTriggerAvailableNow()
    log.logs.update(StandIn({"a-0": (0, 5)}).logs)
    assert reader.latestOffset({}, ReadAllAvailable()) == {}


def test_a_batch_waits_for_the_minimum_size_or_the_maximum_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(tables.time, "monotonic", lambda: now_s)
    log = StandIn({"a-0": (0, 2)})
    reader = stream_reader(log, minoffsetspertrigger="5", maxtriggerdelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(5)
    first = reader.latestOffset(reader.initialOffset(), limit)
    assert first == {"a": {"0": 2}}  # the first batch does not wait
    log.logs.update(StandIn({"a-0": (0, 6)}).logs)
    assert reader.latestOffset(first, limit) == first
    now_s += 60
    second = reader.latestOffset(first, limit)
    assert second == {"a": {"0": 6}}
    log.logs.update(StandIn({"a-0": (0, 11)}).logs)
    assert reader.latestOffset(second, limit) == {"a": {"0": 11}}


def test_a_stopped_stream_releases_its_resources() -> None:
    log = StandIn({"a-0": (0, 5)})
    stream_reader(log).stop()
    assert log.closed == 1
