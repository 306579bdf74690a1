"""Fetch: sends whole batches from partitions as file regions, and waits if there is less than the client wants.

Behaviour: the first batch of an answer is the one that contains the requested offset. The first partition with records
gets at least one batch, even beyond the limits. With less than min_bytes the request waits for an append, or until
max_wait. Sessions are as in KIP-227: see `fetch_sessions`. An error concerns its partition only, except for errors of
the session. A session remembers the names of its topics: once one is deleted, that is unknown, and if it is created
again, its id is another one. Elsewhere, the id of a deleted topic is unknown.

Versions: 0 and 1 read message format 0, 2 and 3 format 1; newer formats are converted for them, without control
batches. 1 brought the throttle time, 3 max_bytes (before, each partition with records gets at least one batch, as
those clients always list the partitions in the same order), 4 format 2 and isolation levels, 5 the log start offset,
7 sessions, 9 leader epochs (KIP-320), 10 zstd (Kafka 4 serves it in versions 4 to 9, too; before 4, topics with
compression.type=zstd are refused), 12 diverging epochs and the current leader, 13 topic ids, 16 the addresses of
leaders, 17 and 18 fields for followers.

If records are stored without attributes (`record.attributes.elide`, KIP-931), they are sent with attributes, except to
clients that announce support for records without them in the tagged field 10000 (version 12 and newer).

Followers serve consumers from version 11 on. A leader sends consumers to a follower in their own rack if
`replica.selector.class` is set (KIP-392).

Not implemented: fetching as a follower (a replica id that has the right to copy is treated as a consumer).
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchedPartition, FetchSession
from minibroker.broker.handlers.down_conversion import DownConversionNeeded
from minibroker.broker.handlers.fetch_reading import FIRST_WITH_FORMAT_2, FIRST_WITH_TOPIC_IDS, FetchReading
from minibroker.broker.handlers.long_fetch_reading import LongFetchReading, make_long_fetch_reading
from minibroker.broker.handlers.watching import WATCHED_MAX, PartitionWatch
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.steps import Steps, remove_items_in_portions, run_all_steps, split_into_portions

FEW: Final = 100  # partitions that are read in one step

Item = TypeVar("Item")


@handles(ApiKey.FETCH)
def fetch(context: RequestContext, request: FetchRequest) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    if context.version < FIRST_WITH_FORMAT_2 or _asks_for_many_partitions(context, request):
        return _fetch_in_steps(context, request)
    session = None
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
        wanted = _make_requested_partitions(context, request.topics)
    else:
        session, wanted = run_all_steps(_find_session_and_partitions(context, request))
    reading = FetchReading(context, request, session, wanted)
    try:
        reading.read_partitions()
    except DownConversionNeeded:
        return _read_long_fetch(make_long_fetch_reading(reading))
    if reading.can_answer_now() or request.max_wait_ms <= 0:
        return reading.make_response()
    return _wait_and_reread_partitions(reading)


async def _fetch_in_steps(context: RequestContext, request: FetchRequest) -> FetchResponse:
    session, wanted = await run_in_slices(_find_session_and_partitions(context, request))
    return await _read_long_fetch(LongFetchReading(context, request, session, wanted))


async def _read_long_fetch(reading: LongFetchReading) -> FetchResponse:
    """Read all partitions in slices, and again when they have changed, if the client is to wait."""
    await run_in_slices(reading.read_all_partitions())
    has_room = reading.context.node.watched + len(reading.wanted) <= WATCHED_MAX
    if reading.can_answer_now() or reading.request.max_wait_ms <= 0 or not has_room:
        return await run_in_slices(reading.make_response_in_steps())
    return await _wait_and_reread_partitions(reading)


async def _wait_and_reread_partitions(reading: FetchReading) -> FetchResponse:
    """Read again when appends have added enough, an error has come up, or the time is over; return the answer then."""
    unreadable = reading.unreadable
    with PartitionWatch(reading.context, reading.request.max_wait_ms) as watch:
        await reading.add_watch_to_partitions(watch)
        while True:
            watch.missing_bytes = reading.min_bytes - reading.size_bytes
            await watch.make_promise_of_change()
            is_late = watch.is_late
            try:
                await reading.reread_grown_partitions(watch)
            except DownConversionNeeded:  # a change of the topic makes it necessary
                return await run_in_slices(make_long_fetch_reading(reading).read_partitions_and_respond())
            if is_late or reading.can_answer_now() or reading.unreadable > unreadable:
                return await reading.build_response()


def _asks_for_many_partitions(context: RequestContext, request: FetchRequest) -> bool:
    """Return whether the request is for so many partitions that it must be handled in steps."""
    named = len(request.topics) + len(request.forgotten_topics_data)
    for topic in request.topics:
        named += len(topic.partitions)
    for forgotten in request.forgotten_topics_data:
        named += len(forgotten.partitions)
    return named > FEW or (
        request.session_id != NO_SESSION and context.node.sessions.get_partition_count(request.session_id) > FEW
    )


# --- what is asked ------------------------------------------------------------------------------


def _find_session_and_partitions(
    context: RequestContext, request: FetchRequest
) -> Steps[tuple[FetchSession | None, list[FetchedPartition]]]:
    """Return the fetch session that is used or begun, if any, and the partitions to read. Raises KafkaError."""
    sessions = context.node.sessions
    uses_topic_ids = context.version >= FIRST_WITH_TOPIC_IDS
    now_ms = context.cluster.clock.monotonic_ms()
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.remove_session(request.session_id)
        wanted = yield from _make_requested_partitions_in_steps(context, request)
        if request.session_epoch == FINAL_EPOCH:
            return None, wanted
        return (yield from _begin_fetch_session(context, wanted)), wanted
    session = sessions.get_session_of_incremental_fetch(
        request.session_id, request.session_epoch, uses_topic_ids, now_ms
    )
    session.advance_epoch()  # first of all, so that a second request with this epoch cannot change the session
    yield from _update_fetch_session(context, session, request)
    sessions.update_session_memory(session, now_ms)
    if not session.partitions:
        sessions.remove_session(session.session_id)
        return None, (yield from _make_requested_partitions_in_steps(context, request))
    return session, list(session.partitions.values())


def _begin_fetch_session(context: RequestContext, partitions: list[FetchedPartition]) -> Steps[FetchSession | None]:
    """Return a new session with these partitions, or None if there is no room for it."""
    sessions = context.node.sessions
    now_ms = context.cluster.clock.monotonic_ms()
    session = sessions.create_session(len(partitions), context.version >= FIRST_WITH_TOPIC_IDS, now_ms)
    if session is None:
        return None
    for portion in split_into_portions(partitions):
        for partition in portion:
            _set_topic_name(context, partition)
        session.add_partitions(portion)
        if len(partitions) > FEW:
            yield
    return session if sessions.update_session_memory(session, now_ms) else None


def _make_requested_partitions(
    context: RequestContext, topics: Iterable[FetchRequest.FetchTopic]
) -> list[FetchedPartition]:
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    return [
        _set_requested_values(FetchedPartition(topic.topic_id if by_id else topic.topic, asked.partition), asked)
        for topic in topics
        for asked in topic.partitions
    ]


def _make_requested_partitions_in_steps(
    context: RequestContext, request: FetchRequest
) -> Steps[list[FetchedPartition]]:
    """Return the partitions of a request, many in several steps, without the names of topics with ids."""
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    named: list[FetchedPartition] = []
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for portion in _iterate_portions(context, topic.partitions):
            named += [_set_requested_values(FetchedPartition(key, asked.partition), asked) for asked in portion]
            if len(named) > FEW:
                yield
        if len(request.topics) > FEW:
            yield
    return named


def _iterate_portions(context: RequestContext, items: list[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items in portions; remove them from the list meanwhile, unless interceptors see the request, too."""
    return remove_items_in_portions(items) if context.may_take_apart else split_into_portions(items)


def _set_requested_values(
    partition: FetchedPartition, requested: FetchRequest.FetchTopic.FetchPartition
) -> FetchedPartition:
    """Copy the offset, limit and epochs of a request to the session's partition; return that."""
    partition.fetch_offset = requested.fetch_offset
    partition.max_bytes = requested.partition_max_bytes
    partition.current_leader_epoch = requested.current_leader_epoch
    partition.last_fetched_epoch = requested.last_fetched_epoch
    return partition


def _set_topic_name(context: RequestContext, partition: FetchedPartition) -> None:
    """Set the partition's topic name, if the request has the topic's id instead."""
    if not isinstance(partition.topic, str):
        topic = context.find_topic(partition.topic)
        partition.name = None if topic is None else topic.name


def _update_fetch_session(context: RequestContext, session: FetchSession, request: FetchRequest) -> Steps[None]:
    """Add the request's partitions to the session, or change them, and remove its forgotten ones."""
    by_id = context.version >= FIRST_WITH_TOPIC_IDS
    for topic in request.topics:
        key = topic.topic_id if by_id else topic.topic
        for portion in _iterate_portions(context, topic.partitions):
            for asked in portion:
                known = session.partitions.get((key, asked.partition))
                if known is None:
                    known = FetchedPartition(key, asked.partition)
                    _set_topic_name(context, known)
                    session.add_partitions([known])
                _set_requested_values(known, asked)
                if len(session.partitions) > FEW:
                    yield
    for forgotten in request.forgotten_topics_data:
        key = forgotten.topic_id if by_id else forgotten.topic
        for index in forgotten.partitions:
            session.remove_partition(key, index)
            if len(forgotten.partitions) > FEW:
                yield
