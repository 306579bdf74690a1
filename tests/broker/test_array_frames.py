"""Every array of every request, filled with its least items: no turn of the loop does much, and memory stays bounded.

Nothing here looks at a clock. What a turn does is counted in calls, of Python and of C, and the slicer's clock counts
them too: a call is a microsecond. What seconds it takes is measured in `benchmarks/holds.py`.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from minibroker.broker.delayed_operations import SLICE_SECONDS, Slicer
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.framing import FrameBudget
from minibroker.broker.requests.dispatch import Dispatcher
from minibroker.broker.requests.routes import LARGE_FRAME_BYTES, UnanswerableRequest
from minibroker.protocol import errors
from minibroker.protocol.apis import ApiKey, get_request_class, get_response_class
from minibroker.protocol.headers import RequestHeader, get_request_header_version
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.primitives import Output
from minibroker.protocol.steps import run_all_steps
from tests.broker import harness as in_process
from tests.broker.harness import Harness, KeptOutlet
from tests.cases import for_each
from tests.protocol.array_frames import Array, all_arrays, array_frame, tags_frame
from tests.sampling import sampled

FRAME_BYTES = 40_000  # more than what is read at once in any case, and less than what is refused for its many items
HEADER_BYTES = 100  # more than what stands in a frame beside the array
NEW_TOPICS_BYTES = 5_000  # where each item has a topic made: hundreds of them, at a thousand calls each
FEW_BYTES = 4
CALL_SECONDS = 1e-6
MOST_CALLS = 20_000  # in a turn: a slice, and its last step, which may read a thousand items
MOST_TIMES = 10  # the frame, of memory,
SMALLER_FRAME_BYTES = 10_000  # for memory: to trace what is allocated takes time
SLACK_BYTES = 2 << 20  # beside what such a frame may take; the most is 0.9 MB

ARRAYS = all_arrays()
by_array = for_each("array", ARRAYS)


def cases(arrays: Iterable[Array], *, distinct: bool) -> list[Any]:
    """Each array with items that are alike and, if that is wanted and makes a difference, with items that differ.

    Older shapes of an array are thorough, and of the newest also items that are alike where there are others: those
    take longer.
    """
    made = []
    for array in arrays:
        name = array.name.replace(" ", "-")
        both = distinct and array_frame(array, 1_000) != array_frame(array, 1_000, distinct=True)
        for differ in [both] if array not in NEWEST else (False, True) if both else (False,):
            marks = () if array in NEWEST and differ == both else (pytest.mark.thorough,)
            made.append(pytest.param(array, differ, id=f"{name}-{'distinct' if differ else 'alike'}", marks=marks))
    return made


def newest(arrays: Iterable[Array]) -> list[Array]:
    """Of each array, the newest shape."""
    return list({(array.key, array.path): array for array in arrays}.values())


NEWEST = newest(ARRAYS)


def compile_all_of(array: Array) -> None:
    """Compile what reads and writes this version: that is done once, however many requests follow."""
    request, response = get_request_class(array.key), get_response_class(array.key)
    frame = memoryview(bytearray(array_frame(array, 0)))
    _, position = RequestHeader.decode_from(frame, get_request_header_version(array.key, array.version), 4)
    request.decode_from(frame, array.version, position)
    run_all_steps(request.decode_in_steps(frame, array.version, position, 1 << 20))
    response().encode_into(Output(), array.version)
    run_all_steps(response().encode_in_steps(Output(), array.version, 1 << 20))


def frame_of(array: Array, distinct: bool) -> bytes:
    """A frame that is read in steps; with fewer items if they differ and each is much work."""
    makes_topics = distinct and array.key == ApiKey.METADATA
    return array_frame(array, NEW_TOPICS_BYTES if makes_topics else FRAME_BYTES, distinct=distinct)


def dense(arrays: Iterable[Array]) -> list[Array]:
    """Return those whose items are so small that there are thousands in a small frame."""
    return [array for array in arrays if array.item_bytes <= FEW_BYTES]


@pytest.fixture(autouse=True)
def no_other_brokers_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those of brokers that other tests left to the garbage collector: each error would call them."""
    monkeypatch.setattr(errors, "witnesses", [])


class Loop:
    """A loop whose turns are counted: `most_calls` is what the longest did, `turns` how many there were."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.calls = 0
        self.most_calls = 0
        self.turns = 0

    def now(self) -> float:
        return self.calls * CALL_SECONDS

    def turn(self, work: Callable[[], object]) -> None:
        """Run one turn."""
        before = self.calls
        profiler = sys.getprofile()
        sys.setprofile(self._count)
        try:
            work()
        finally:
            sys.setprofile(profiler)
        self.turns += 1
        self.most_calls = max(self.most_calls, self.calls - before)

    def run(self) -> None:
        """Take turns until there is nothing left to do."""
        while self.soon:
            self.turn(self.soon.pop(0))

    def _count(self, frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


class UncountedLoop(Loop):
    """A loop in which each step is a slice: nothing is counted, which takes half the time."""

    def now(self) -> float:
        self.calls += round(SLICE_SECONDS / CALL_SECONDS)
        return super().now()

    def turn(self, work: Callable[[], object]) -> None:
        """Run one turn."""
        work()


class Asked:
    """A connection to a cluster of its own, whose requests run in turns of a counting loop."""

    def __init__(self, harness: Harness, loop: Loop | None = None) -> None:
        self.loop = loop or Loop()
        self.outlet = KeptOutlet()
        self.outlet.soon = self.loop.soon
        self.slicer = Slicer(self.loop.soon.append, self.loop.now)
        self._harness = harness
        self._dispatcher = Dispatcher(harness.cluster, None, self.slicer)
        self._connection = Connection(
            harness.cluster.nodes[1],
            "PLAINTEXT",
            self.outlet,
            self._execute,
            harness.cluster.turn.add_listener,
            FrameBudget(),
            1 << 27,
        )

    def ask(self, frame: bytes) -> None:
        """Let the frame arrive, piece by piece, and run all that it brings about."""
        scratch = memoryview(bytearray(1 << 16))
        position = 0
        while position < len(frame):
            room = self._connection.get_receive_buffer(scratch)
            count = min(len(room), len(frame) - position)
            room[:count] = frame[position : position + count]
            position += count
            self.loop.turn(lambda count=count: self._connection.process_received_data(scratch, count))  # type: ignore[misc]
        self.loop.run()

    def _execute(self, connection: Connection, frame: memoryview) -> Any:
        try:
            return self._dispatcher.execute(connection, frame)
        except UnanswerableRequest:
            connection.close_after_answers()
            return None


@by_array
def test_generated_frames_with_long_arrays_decode_as_intended(array: Array) -> None:
    frame = array_frame(array, 3_000)
    _, position = RequestHeader.decode_from(frame, get_request_header_version(array.key, array.version), 4)
    message: Any
    message, end = get_request_class(array.key).decode_from(frame, array.version, position)
    assert end == len(frame) == int.from_bytes(frame[:4], "big") + 4
    for name in array.path[:-1]:
        field = getattr(message, name)
        message = field[0] if isinstance(field, list) else field
    assert len(getattr(message, array.path[-1])) == 3_000 // array.item_bytes


@pytest.mark.parametrize(("array", "distinct"), cases(ARRAYS, distinct=True))
def test_handling_a_request_with_long_arrays_makes_a_bounded_number_of_calls_per_loop_turn(
    harness: Harness, array: Array, distinct: bool
) -> None:
    compile_all_of(array)
    Asked(harness).ask(array_frame(array, 0))  # what is imported and made once is no work of the request
    asked = Asked(harness)
    asked.ask(frame_of(array, distinct))
    assert asked.loop.most_calls <= MOST_CALLS, f"of {asked.loop.calls} in {asked.loop.turns} turns"


@pytest.mark.parametrize(("array", "distinct"), cases(dense(NEWEST), distinct=False))
def test_handling_a_frame_too_small_for_steps_makes_a_bounded_number_of_calls_per_loop_turn(
    harness: Harness, array: Array, distinct: bool
) -> None:
    compile_all_of(array)
    Asked(harness).ask(array_frame(array, 0))
    asked = Asked(harness)
    asked.ask(array_frame(array, LARGE_FRAME_BYTES - HEADER_BYTES, distinct=distinct))
    assert asked.loop.most_calls <= MOST_CALLS, f"of {asked.loop.calls} in {asked.loop.turns} turns"


@pytest.mark.parametrize(("array", "distinct"), sampled(cases(NEWEST, distinct=False), every=8))
def test_the_memory_of_a_decoded_request_is_bounded_by_its_frame_size(
    harness: Harness, array: Array, distinct: bool
) -> None:
    asked = Asked(harness, UncountedLoop())
    frame = array_frame(array, SMALLER_FRAME_BYTES, distinct=distinct)
    assert peak_of(lambda: asked.ask(frame)) <= MOST_TIMES * len(frame) + SLACK_BYTES


def fetch_frame(partitions: int, version: int, session_epoch: int) -> bytes:
    """A Fetch of so many partitions of a topic that is not there, each with numbers of its own."""
    asked = FetchRequest.FetchTopic
    each = [asked.FetchPartition(partition=index, fetch_offset=1 << 20) for index in range(partitions)]
    topics = [asked(topic="unknown", topic_id=b"u" * 16, partitions=each)]
    return in_process.frame_of(FetchRequest(session_epoch=session_epoch, topics=topics), version)


@pytest.mark.parametrize("version", [pytest.param(11, marks=pytest.mark.thorough), 18])
@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["alone", "session"])
def test_a_fetch_of_many_partitions_uses_memory_in_proportion_to_its_frame(
    harness: Harness, version: int, session_epoch: int
) -> None:
    Asked(harness).ask(fetch_frame(2_000, version, session_epoch))
    asked = Asked(harness, UncountedLoop())
    frame = fetch_frame(30_000, version, session_epoch)
    peak_bytes = peak_of(lambda: asked.ask(frame)) - harness.cluster.nodes[1].sessions.held_bytes  # which has a limit
    assert peak_bytes / len(frame) <= MOST_TIMES
    assert not asked.outlet.closed and len(asked.outlet.items[0]) > len(frame)


@pytest.mark.parametrize("in_header", [True, False], ids=["header", "body"])
def test_handling_a_frame_full_of_unknown_tagged_fields_makes_a_bounded_number_of_calls_per_loop_turn(
    harness: Harness, in_header: bool
) -> None:
    asked = Asked(harness)
    asked.ask(tags_frame(FRAME_BYTES, in_header=in_header))
    assert asked.loop.most_calls <= MOST_CALLS, f"of {asked.loop.calls} in {asked.loop.turns} turns"


def peak_of(work: Callable[[], object]) -> int:
    """Return the most memory that Python's allocators have given to a work, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
