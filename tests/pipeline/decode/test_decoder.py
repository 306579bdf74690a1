"""The decoder of records against the broker's own codec, which makes an object of each record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.decode.decoder import whole_batches
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
from tests.pipeline.decode.reference import decoded, expected
from tests.pipeline.decode.samples import logs
from tests.protocol.records.samples import T


@given(data=logs(), chunk_bytes=st.sampled_from((1, 100, 1000, 4 << 20)))
def test_all_formats_codecs_and_kinds_of_batches(data: bytes, chunk_bytes: int) -> None:
    assert decoded(data, chunk_bytes=chunk_bytes) == expected(data)


def test_a_torn_batch_is_not_whole() -> None:
    data = bytes(build_batch([Record(0, T, None, b"v")]))
    assert [whole_batches(data + data[:cut]) for cut in (0, 5, 60, 61, len(data) - 1, len(data))] == [
        *[len(data)] * 5,
        2 * len(data),
    ]
