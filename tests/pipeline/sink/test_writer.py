"""The writers as Spark calls them, without Spark: pickled on their way to a task, and made anew for the commit."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StringType, StructType

from minibroker.client.client_errors import ClientError
from minibroker.pipeline.log_source import OptionError
from minibroker.pipeline.sink.sink_transaction import WriteFailed
from minibroker.pipeline.sink.writer import BATCH_ID, QUERY_ID, TaskMessage, make_batch_writer, make_stream_writer
from minibroker.pipeline.sources.tables import RecordsSource
from tests.pipeline.sink.committed import values
from tests.running import RunningBroker, running_broker

SCHEMA = StructType().add("value", StringType())
ROWS = pa.record_batch({"value": ["a", "b"]})
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
EXACTLY_ONCE = {"delivery": "exactly-once"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_context() -> Iterator[None]:
    """Tests here are tasks for as long as they last."""
    yield
    TaskContext._setTaskContext(None)  # type: ignore[arg-type]


def become_task(number: int, **properties: str) -> None:
    """Be a task of Spark's; properties have `_` for `.`."""
    context = TaskContext._getOrCreate()
    context._partitionId = number
    context._localProperties = {name.replace("_", "."): value for name, value in properties.items()}
    TaskContext._setTaskContext(context)


def task_of(batch: int, number: int = 0, query: str = "query") -> None:
    become_task(number)
    context = TaskContext.get()
    assert context is not None
    context._localProperties = {QUERY_ID: query, BATCH_ID: str(batch)}


def options_for(broker: RunningBroker, topic: str, **options: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, **options}


def written(writer: Any) -> TaskMessage:
    """Return a task's message, as the driver gets it; the task got the writer by pickle."""
    copy = pickle.loads(pickle.dumps(writer))
    said = pickle.loads(pickle.dumps(copy.write(iter([ROWS]))))
    assert isinstance(said, TaskMessage)
    return said


def test_the_data_source_has_batch_and_stream_writers(broker: RunningBroker) -> None:
    source = RecordsSource(options_for(broker, "sources"))
    become_task(0)
    for writer in (source.writer(SCHEMA, False), source.streamWriter(SCHEMA, False)):
        assert written(writer).delivered.rows == 2
    assert values(broker.bootstrap_servers, "sources") == [b"a", b"b"] * 2


def test_each_batch_of_a_stream_is_committed_once_by_a_new_writer(broker: RunningBroker) -> None:
    options = options_for(broker, "stream", **EXACTLY_ONCE)
    for batch in (0, 1):
        messages: list[Any] = []
        for number in (0, 1):
            task_of(batch, number)
            messages.append(written(make_stream_writer(options, SCHEMA, False)))
        assert values(broker.bootstrap_servers, "stream") == [b"a", b"b"] * 2 * batch
        make_stream_writer(options, SCHEMA, False).commit(messages, batch)
    assert values(broker.bootstrap_servers, "stream") == [b"a", b"b"] * 4
    task_of(1)
    assert written(make_stream_writer(options, SCHEMA, False)).delivered.transaction is None


def test_batches_of_two_streaming_queries_with_equal_numbers_are_both_written(broker: RunningBroker) -> None:
    options = options_for(broker, "queries", **EXACTLY_ONCE)
    for query in ("one", "two"):
        task_of(0, query=query)
        make_stream_writer(options, SCHEMA, False).commit([written(make_stream_writer(options, SCHEMA, False))], 0)
    assert values(broker.bootstrap_servers, "queries") == [b"a", b"b"] * 2


def test_a_stream_is_aborted_although_a_failed_task_left_no_message(broker: RunningBroker) -> None:
    writer = make_stream_writer(options_for(broker, "aborted", **EXACTLY_ONCE), SCHEMA, False)
    task_of(0, query="aborted")
    writer.abort([None, written(writer)], 0)
    assert values(broker.bootstrap_servers, "aborted") == []


def test_a_batch_write_repeated_with_its_write_id_is_done_once(broker: RunningBroker) -> None:
    options = options_for(broker, "batch", writeId="march", **EXACTLY_ONCE)
    become_task(0)
    for _ in range(2):
        writer = make_batch_writer(options, SCHEMA, False)
        writer.commit([written(writer)])
    assert values(broker.bootstrap_servers, "batch") == [b"a", b"b"]
    writer.abort([None])
    other = make_batch_writer(options | {"writeId": "april"}, SCHEMA, False)
    other.commit([written(other)])
    assert values(broker.bootstrap_servers, "batch") == [b"a", b"b"] * 2


def test_nothing_is_written_outside_of_a_spark_task(broker: RunningBroker) -> None:
    writer = make_stream_writer(options_for(broker, "outside", **EXACTLY_ONCE), SCHEMA, False)
    with pytest.raises(WriteFailed, match="rows are written by Spark's tasks"):
        writer.write(iter([ROWS]))
    become_task(0)
    with pytest.raises(WriteFailed, match=r"needs Spark to tell its tasks sql\.streaming\.queryId"):
        writer.write(iter([ROWS]))


@pytest.mark.parametrize(
    ("options", "schema", "why"),
    [
        ({"kafka.no.such.thing": "1"}, SCHEMA, "kafka.no.such.thing"),
        ({"subscribe": "t"}, SCHEMA, "a writer has no option subscribe"),
        ({}, StructType().add("value", IntegerType()), "value attribute unsupported type int"),
    ],
)
def test_invalid_options_are_rejected_before_a_task_starts(
    options: Mapping[str, str], schema: StructType, why: str
) -> None:
    for make in (make_batch_writer, make_stream_writer):
        with pytest.raises(OptionError, match=why):
            make({**NOWHERE, **options}, schema, False)


def test_invalid_save_modes_and_names_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="save mode overwrite is not allowed"):
        make_batch_writer(NOWHERE, SCHEMA, True)
    with pytest.raises(OptionError, match="needs the option writeId"):
        make_batch_writer(NOWHERE | EXACTLY_ONCE, SCHEMA, False)
    with pytest.raises(OptionError, match="writeId is an option of df.write"):
        make_stream_writer(NOWHERE | EXACTLY_ONCE | {"writeId": "march"}, SCHEMA, False)
    with pytest.raises(ClientError, match="cannot connect to 127.0.0.1:1: Connection refused"):
        make_stream_writer(NOWHERE, SCHEMA, True)  # output mode complete appends, as to Spark's own sink
    with pytest.raises(ClientError, match="cannot connect to 127.0.0.1:1: Connection refused"):
        make_batch_writer(NOWHERE, SCHEMA, False)
