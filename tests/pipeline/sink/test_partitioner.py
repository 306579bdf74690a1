"""A row goes to the partition that it names, else where its key goes in every Kafka client, else in turns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as truth

from minibroker.pipeline.log_source import TopicPartition
from minibroker.pipeline.sink.task import Partitioner, RowsConverter, compute_murmur2, hash_keys

COUNTS = {"t": 3, "u": 5}

fields = st.tuples(st.sampled_from("tu"), st.none() | st.integers(0, 2), st.none() | st.binary(max_size=9))

keys = st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=270), max_size=30)


def count(topic: str, at_least: int) -> int:
    return COUNTS[topic]


def rows_of(all_fields: list[tuple[str, int | None, bytes | None]], value: bytes = b"v") -> pa.RecordBatch:
    columns = {
        "topic": pa.array([topic for topic, _, _ in all_fields], pa.string()),
        "partition": pa.array([partition for _, partition, _ in all_fields], pa.int32()),
        "key": pa.array([key for _, _, key in all_fields], pa.binary()),
        "value": pa.array([value] * len(all_fields), pa.binary()),
    }
    return RowsConverter(None).convert_rows(pa.record_batch(columns))


def placed(partitioner: Partitioner, rows: pa.RecordBatch) -> dict[int, TopicPartition]:
    """Each row's place, by its number."""
    split = list(partitioner.split_by_partition(rows))
    assert len({partition for partition, _ in split}) == len(split), "a partition comes once"
    for _, some in split:
        numbers = some.column("row").to_pylist()
        assert numbers == sorted(numbers), "the rows of a partition keep their order"
    return {number: partition for partition, some in split for number in some.column("row").to_pylist()}


@given(all_fields=st.lists(fields, max_size=30))
def test_each_row_is_partitioned_once_explicitly_or_by_its_key(
    all_fields: list[tuple[str, int | None, bytes | None]],
) -> None:
    places = placed(Partitioner(count, 100), rows_of(all_fields))
    assert sorted(places) == list(range(len(all_fields)))
    for number, (topic, partition, key) in enumerate(all_fields):
        assert places[number].topic == topic
        if partition is not None:
            assert places[number].partition == partition
        elif key is not None:
            assert places[number].partition == (truth(key) & 0x7FFFFFFF) % COUNTS[topic]
        assert 0 <= places[number].partition < COUNTS[topic]


def test_rows_without_a_key_stay_in_a_partition_until_its_batch_is_full() -> None:
    partitioner = Partitioner(count, sticky_bytes=100, first=1)
    rows = rows_of([("t", None, None)] * 10, value=bytes(40))  # 50 with what a record needs: two are a batch
    places = placed(partitioner, rows)
    assert [places[number].partition for number in range(10)] == [1, 1, 2, 2, 0, 0, 1, 1, 2, 2]
    (again,) = partitioner.split_by_partition(rows.slice(0, 2))
    assert again[0].partition == 0


def test_the_partitioner_can_ignore_keys() -> None:
    rows = rows_of([("u", None, b"%d" % number) for number in range(20)])
    assert {partition.partition for partition, _ in Partitioner(count, 1 << 20, 4, True).split_by_partition(rows)} == {
        4
    }


def test_no_rows_are_split_into_no_partitions() -> None:
    assert list(Partitioner(count, 100).split_by_partition(rows_of([]))) == []


def test_a_partition_beyond_the_known_count_is_looked_up() -> None:
    asked = []

    def counting(topic: str, at_least: int) -> int:
        asked.append((topic, at_least))
        return 9

    list(Partitioner(counting, 100).split_by_partition(rows_of([("t", 7, None), ("t", None, b"k")])))
    assert asked == [("t", 8)]


@pytest.mark.parametrize("size", [1, 1000])
def test_rows_of_a_single_partition_are_not_copied(size: int) -> None:
    rows = rows_of([("t", 1, None)] * size)
    ((partition, some),) = Partitioner(count, 100).split_by_partition(rows)
    assert (partition, some) == (TopicPartition("t", 1), rows)


@given(keys=keys)
def test_hashing_a_column_of_keys_equals_hashing_each_key(keys: list[bytes]) -> None:
    hashes = [truth(key) & 0xFFFFFFFF for key in keys]
    assert hash_keys(pa.array(keys, pa.binary())).tolist() == hashes
    assert [compute_murmur2(key) for key in keys] == hashes


@given(keys=keys)
def test_a_slice_of_a_column_hashes_like_its_own_keys(keys: list[bytes]) -> None:
    column = pa.array([b"before", None, *keys, b"after"], pa.binary()).slice(2, len(keys))
    assert hash_keys(column).tolist() == [truth(key) & 0xFFFFFFFF for key in keys]


def test_null_and_empty_keys_of_a_column_have_the_hash_of_an_empty_key() -> None:
    nothing = truth(b"") & 0xFFFFFFFF
    assert hash_keys(pa.array([None, b""], pa.binary())).tolist() == [nothing, nothing]
    assert hash_keys(pa.array([], pa.binary())).tolist() == []
