"""Keys hash as Kafka's clients hash them: kafka-python's murmur2 is the source of truth."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as truth

from minibroker.pipeline.sink.murmur2_columns import murmur2, murmur2_of

keys = st.lists(st.binary(max_size=20) | st.binary(min_size=250, max_size=270), max_size=30)


@given(keys=keys)
def test_a_column_of_keys_hashes_like_each_key(keys: list[bytes]) -> None:
    hashes = [truth(key) & 0xFFFFFFFF for key in keys]
    assert murmur2_of(pa.array(keys, pa.binary())).tolist() == hashes
    assert murmur2_of(pa.array(keys, pa.large_binary())).tolist() == hashes
    assert [murmur2(key) for key in keys] == hashes


@given(keys=keys)
def test_a_slice_of_a_column_hashes_like_its_own_keys(keys: list[bytes]) -> None:
    column = pa.array([b"before", None, *keys, b"after"], pa.binary()).slice(2, len(keys))
    assert murmur2_of(column).tolist() == [truth(key) & 0xFFFFFFFF for key in keys]


def test_a_column_of_empty_keys_has_hashes() -> None:
    nothing = truth(b"") & 0xFFFFFFFF
    assert murmur2_of(pa.array([None, b""], pa.binary())).tolist() == [nothing, nothing]
    assert murmur2_of(pa.array([], pa.binary())).tolist() == []
