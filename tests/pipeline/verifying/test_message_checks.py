"""Messages of formats 0 and 1, plain and in wrappers: what the broker writes, and what cannot be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from minibroker.pipeline.verifying.record_checks import check_old_messages
from minibroker.protocol.records.compression import compress
from minibroker.protocol.records.message import encode_message
from minibroker.protocol.records.message_set import build_message_set
from minibroker.protocol.records.record import Record
from tests.cases import for_each
from tests.pipeline.verifying.support import block_of

blobs = st.none() | st.binary(max_size=60)
records = st.lists(st.builds(Record, st.just(0), st.integers(-1, 1 << 45), blobs, blobs), min_size=1, max_size=20)


def checked(data: bytes, *, compacted: bool = False) -> tuple[list[str], list[int], list[int]]:
    """(kinds of the problems, offsets of the records, first offsets of the batches)."""
    block = block_of(data)
    problems, found = check_old_messages(block, compacted=compacted)
    return (
        [each.kind for each in problems],
        [o for each in found for o in each.offset.tolist()],
        block.first_offset.tolist(),
    )


@given(records, st.sampled_from([0, 1]), st.sampled_from([1, 2, 3]))
def test_a_wrapper_of_the_broker_has_no_findings(given: list[Record], magic: int, codec: int) -> None:
    placed = [record._replace(offset=500 + number) for number, record in enumerate(given)]
    data = bytes(build_message_set(placed, magic, compression=codec))
    assert checked(data) == ([], [record.offset for record in placed], [500])


@given(records, st.sampled_from([0, 1]))
def test_plain_messages_of_the_broker_have_no_findings(given: list[Record], magic: int) -> None:
    messages = [bytes(build_message_set([each._replace(offset=n)], magic)) for n, each in enumerate(given)]
    offsets = list(range(len(given)))
    assert checked(b"".join(messages)) == ([], offsets, offsets)


def wrapper(*inner: tuple[int, int], magic: int = 1, offset: int = 9, timestamp: int = 7, codec: int = 1) -> bytes:
    """A wrapper of messages with these offsets and times."""
    payload = b"".join(encode_message(magic, each, time, 0, b"k", b"v") for each, time in inner)
    return bytes(encode_message(magic, offset, timestamp, codec, None, compress(1, payload)))


def with_a_byte_more(message: bytes) -> bytes:
    """The message with a byte behind its value that its size counts."""
    return message[:8] + (int.from_bytes(message[8:12]) + 1).to_bytes(4) + message[12:] + b"!"


@for_each(
    ("data", "kinds"),
    [
        (wrapper((0, 7), (1, 3)), []),
        (wrapper((8, 7), (9, 3), magic=0), []),
        (wrapper((7, 7), (8, 3), magic=0), ["record-offset"]),  # the last one is not the wrapper's
        (wrapper((0, 7), (0, 3)), ["record-offset"]),
        (wrapper((0, 7), (2, 3)), ["record-offset"]),  # a gap, which only compaction leaves
        (wrapper((0, 7), (20, 3)), ["record-offset"]),  # it would begin before 0
        (wrapper((0, 6), (1, 3)), ["max-timestamp"]),
        (wrapper((0, 7), codec=9), []),  # the time of the append, which holds for all
        (wrapper(), ["record-count"]),
        (wrapper((0, 7), codec=4), ["codec"]),
        (wrapper((0, 7), codec=2), ["codec"]),
        (bytes(encode_message(1, 9, 7, 1, None, None)), ["codec"]),
        (bytes(encode_message(1, 9, 7, 1, None, compress(1, b"x" * 50))), ["record"]),
        (with_a_byte_more(encode_message(1, 9, 7, 0, b"k", b"v")), ["record"]),
    ],
)
def test_each_kind_of_invalid_old_message_is_found(data: bytes, kinds: list[str]) -> None:
    assert checked(data)[0] == kinds


def test_a_gap_in_a_wrapper_of_a_compacted_log_is_not_a_finding() -> None:
    data = wrapper((0, 7), (2, 3))
    assert checked(data, compacted=True) == ([], [7, 9], [7])


def test_a_wrong_checksum_in_a_wrapper_is_found() -> None:
    inner = bytearray(encode_message(1, 0, 7, 0, b"k", b"v"))
    inner[-1] ^= 1
    data = bytes(encode_message(1, 9, 7, 1, None, compress(1, bytes(inner))))
    assert checked(data)[0] == ["crc"]
