"""Large messages are read and written in steps, to the same effect, and not beyond what they may take."""

from __future__ import annotations

import pytest

from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.declare import Message
from minibroker.protocol.layout import estimate_item_memory_bytes, make_struct_layout
from minibroker.protocol.messages.groups import DescribeGroupsRequest
from minibroker.protocol.primitives import MalformedMessage, Output
from minibroker.protocol.source import READ_ITEMS, WRITTEN_ITEMS
from minibroker.protocol.steps import Steps, run_all_steps
from tests.cases import for_each
from tests.protocol.random_messages import random_message

PLENTY = 1 << 40
KINDS = [kind for key in ApiKey for kind in (get_request_class(key), get_response_class(key))]


def counted(steps: Steps[object]) -> int:
    """How often the steps yield."""
    return sum(1 for _ in steps)


@for_each("kind", KINDS)
def test_reading_and_writing_in_steps_gives_the_same_as_at_once(kind: type[Message]) -> None:
    for version in kind.versions:
        message = random_message(kind, version, 1)
        whole = message.encode(version)
        out = Output()
        run_all_steps(message.encode_in_steps(out, version, PLENTY))
        assert bytes(out) == whole
        read, _ = run_all_steps(kind.decode_in_steps(memoryview(whole), version, 0, PLENTY))
        assert read == kind.decode(whole, version)


def test_each_step_reads_or_writes_a_bounded_number_of_items() -> None:
    request = DescribeGroupsRequest(groups=["g"] * (3 * READ_ITEMS + 1))
    data = memoryview(request.encode(6))
    assert counted(DescribeGroupsRequest.decode_in_steps(data, 6, 0, PLENTY)) == 3
    read, long_arrays = run_all_steps(DescribeGroupsRequest.decode_in_steps(data, 6, 0, PLENTY))
    assert [id(array) for array in long_arrays] == [id(read.groups)]
    assert counted(request.encode_in_steps(Output(), 6, PLENTY)) == 3 * READ_ITEMS // WRITTEN_ITEMS
    assert run_all_steps(request.encode_in_steps(Output(), 6, PLENTY)) == [request.groups]


def test_arrays_that_would_use_too_much_memory_are_rejected_in_advance() -> None:
    count = 5000
    data = memoryview(DescribeGroupsRequest(groups=[""] * count).encode(6))
    groups = make_struct_layout(DescribeGroupsRequest, 6, True).body[0].kind
    assert groups.item is not None
    cost = estimate_item_memory_bytes(groups.item, 6, True)
    run_all_steps(DescribeGroupsRequest.decode_in_steps(data, 6, 0, count * cost))
    steps = DescribeGroupsRequest.decode_in_steps(data, 6, 0, count * cost - 1)
    with pytest.raises(MalformedMessage, match="field groups: 5000 items, which would take too much memory"):
        next(steps)


def test_arrays_longer_than_kafka_accepts_are_rejected_in_advance() -> None:
    data = memoryview(DescribeGroupsRequest(groups=[""] * 1_000_001).encode(6))
    with pytest.raises(MalformedMessage, match="1000001 items, and 1000000 are the most"):
        next(DescribeGroupsRequest.decode_in_steps(data, 6, 0, PLENTY))


def test_encoding_stops_soon_after_a_response_exceeds_its_limit() -> None:
    request = DescribeGroupsRequest(groups=["g" * 100] * (10 * READ_ITEMS))
    out = Output()
    with pytest.raises(ValueError, match="more than 200000 bytes"):
        run_all_steps(request.encode_in_steps(out, 6, 200_000))
    assert len(out) < 400_000
