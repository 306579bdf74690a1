"""Share consumers of the Java client, librdkafka and franz-go acknowledge, release, reject, renew and lose records."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import confluent_kafka
import pytest

from conformance.conftest import Broker
from conformance.security.client_programs import Program, running_program
from conformance.share.brokers import share_broker
from conformance.share.sharers import PROGRAMS, Seen, Sharer
from conformance.wire.batches import batch
from conformance.wire.connection import Connection
from conformance.wire.members import look_up
from conformance.wire.requests import create_request, end_offset, produce, repeated, topic
from conformance.wire.share_members import configure, start_offset

NOW_MS = 1_700_000_000_000
LOCK_MS = 1000
PATIENCE_S = 30
NO_MORE_S = 0.5  # in which what must not come would have come
NewSharer = Callable[..., Sharer]


@pytest.fixture(scope="module")
def broker(against: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with share_broker(tmp_path_factory.mktemp("share"), against) as running:
        yield running


@pytest.fixture(scope="module")
def start_program() -> Iterator[Callable[[str], Program]]:
    """Starts the one process of a library, which stays."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(running_program(name, PROGRAMS[name]())))


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest, start_program: Callable[[str], Program]) -> Program:
    """The process of a library."""
    return start_program(request.param)


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    with Connection(broker.bootstrap_servers) as opened:
        yield opened


NAMES = (f"share-{number}" for number in itertools.count())


@pytest.fixture
def name(connection: Connection) -> str:
    """A topic of one partition, and the group that reads it, with Kafka's configs of groups in the test's hands."""
    made = next(NAMES)
    answer = connection.ask(create_request(topic(made)), 7).topics[0]
    assert answer.error_code == 0, answer
    repeated(lambda: end_offset(connection, made), lambda offset: offset == 0)
    look_up(connection, made)
    configure(connection, made, auto_offset_reset="earliest")
    return made


@pytest.fixture
def sharer(broker: Broker, program: Program, name: str) -> Iterator[NewSharer]:
    """Makes consumers of the topic, which are closed in the end."""
    made: list[Sharer] = []

    def make(**how: object) -> Sharer:
        settings = {"bootstrap": broker.bootstrap_servers, "group": name, "topic": name, "explicit": True, **how}
        made.append(Sharer(program, f"{name}-{len(made)}", settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def write(connection: Connection, name: str, *sizes: int) -> list[str]:
    """Write batches of so many records; return their values."""
    numbers = itertools.count()
    values = [[f"{next(numbers)}" for _ in range(size)] for size in sizes]
    for some in values:
        assert produce(connection, name, batch([value.encode() for value in some], timestamp=NOW_MS)).error_code == 0
    return [value for some in values for value in some]


def polled(consumer: Sharer, count: int) -> Seen:
    """Poll, and so accept what came before, until there are so many records."""
    found: Seen = []
    while len(found) < count and (more := consumer.poll()):
        found += more
    return found


def await_end(connection: Connection, name: str, group: str | None = None) -> None:
    """Wait until the group has nothing to do any more."""
    assert repeated(lambda: start_offset(connection, group or name, name)[1], lambda lag: lag == 0) == 0


def of(values: list[str], count: int, *offsets: int) -> Seen:
    return [(offset, values[offset], count) for offset in (offsets or range(len(values)))]


def test_polled_records_are_accepted_by_the_next_poll(connection: Connection, name: str, sharer: NewSharer) -> None:
    values = write(connection, name, *[20] * 10)
    consumer = sharer(explicit=False)
    assert polled(consumer, 200) == of(values, 1)
    assert consumer.poll(0.1) == []
    await_end(connection, name)


def test_records_are_accepted_released_and_rejected(connection: Connection, name: str, sharer: NewSharer) -> None:
    configure(connection, name, delivery_count_limit="2")
    values = write(connection, name, 4, 4)
    consumer = sharer()
    assert polled(consumer, 8) == of(values, 1)
    said = ["ACCEPT", "RELEASE", "REJECT", "ACCEPT", "RELEASE", "RELEASE", "REJECT", "ACCEPT"]
    assert consumer.say(dict(enumerate(said))) is None
    assert polled(consumer, 3) == of(values, 2, 1, 4, 5)
    assert consumer.say({1: "ACCEPT", 4: "RELEASE", 5: "RELEASE"}) is None  # the last two as often as they may
    await_end(connection, name)


def test_records_not_acknowledged_in_time_are_redelivered_to_other_consumers(
    connection: Connection, name: str, sharer: NewSharer
) -> None:
    configure(connection, name, record_lock_duration_ms=str(LOCK_MS))
    values = write(connection, name, 3)
    slow = sharer(strict=True)
    assert polled(slow, 3) == of(values, 1)
    other = sharer(strict=True)
    assert polled(other, 3) == of(values, 2)
    assert slow.say(dict.fromkeys(range(3), "ACCEPT")) == "INVALID_RECORD_STATE"
    assert other.say(dict.fromkeys(range(3), "ACCEPT")) is None
    await_end(connection, name)


def test_a_renewed_acquisition_lock_prevents_redelivery_beyond_its_duration(
    connection: Connection, name: str, program: Program, sharer: NewSharer
) -> None:
    if program.name == "confluent":
        pytest.skip("librdkafka 2.16 has no renewal")
    configure(connection, name, record_lock_duration_ms=str(LOCK_MS))
    values = write(connection, name, 1)
    slow = sharer(strict=True)
    assert polled(slow, 1) == of(values, 1)
    other = sharer(strict=True)
    for _ in range(3):
        assert other.poll(0.6 * LOCK_MS / 1000) == []
        assert slow.say({0: "RENEW"}) is None
        if program.name == "java-4":
            assert slow.poll() == of(values, 1)  # it hands out again what was renewed
    assert slow.say({0: "ACCEPT"}) is None
    await_end(connection, name)


def test_a_strict_limit_splits_a_batch_over_several_polls(
    connection: Connection, name: str, program: Program, sharer: NewSharer
) -> None:
    if program.name == "confluent":
        pytest.skip("librdkafka 2.16 has no strict limit")
    values = write(connection, name, 25)
    consumer = sharer(strict=True)
    for first, after in ((0, 10), (10, 20), (20, 25)):
        assert consumer.poll() == of(values, 1, *range(first, after))
        assert consumer.say(dict.fromkeys(range(first, after), "ACCEPT")) is None
    await_end(connection, name)


def test_aborted_records_are_delivered_only_to_read_uncommitted_groups(
    broker: Broker, connection: Connection, name: str, sharer: NewSharer
) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(PATIENCE_S)
    for end, numbers in ((producer.abort_transaction, range(3)), (producer.commit_transaction, range(3, 6))):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(name, b"%d" % number)
        producer.flush()
        end(PATIENCE_S)
    for isolation, expected in (("read_committed", range(3, 6)), ("read_uncommitted", range(6))):
        group = f"{name}-{isolation}"
        configure(connection, group, auto_offset_reset="earliest", isolation_level=isolation)
        consumer = sharer(group=group, explicit=False)
        assert [value for _, value, _ in polled(consumer, len(expected))] == [str(number) for number in expected]
        assert consumer.poll(0.1) == []
        await_end(connection, name, group)


def test_acquired_records_are_delivered_to_no_other_until_a_member_leaves(
    connection: Connection, name: str, sharer: NewSharer
) -> None:
    values = write(connection, name, 5)
    first = sharer(strict=True)
    assert polled(first, 5) == of(values, 1)
    second = sharer(strict=True)
    assert second.poll(NO_MORE_S) == []
    first.close()
    assert polled(second, 5) == of(values, 2)
    assert second.say(dict.fromkeys(range(5), "ACCEPT")) is None
    await_end(connection, name)


def test_members_of_all_libraries_share_a_topic_and_continue_after_a_kill(
    broker: Broker, connection: Connection, name: str, start_program: Callable[[str], Program]
) -> None:
    settings = {"bootstrap": broker.bootstrap_servers, "group": name, "topic": name, "explicit": False}
    members = [Sharer(start_program(library), name, settings) for library in PROGRAMS]
    seen: set[str] = set()

    def read(expected: set[str], asked: Connection) -> None:
        """Read, and so accept what came before, until nothing is left."""
        deadline = time.monotonic() + PATIENCE_S
        while (seen < expected or start_offset(asked, name, name)[1]) and time.monotonic() < deadline:
            for member in members:
                seen.update(value for _, value, _ in member.poll(0.1))
        assert seen == expected

    before = set(write(connection, name, *[5] * 20))
    read(before, connection)
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap_servers) as again:
        look_up(again, name)
        after = {f"more-{number}" for number in range(200)}
        for value in after:
            assert produce(again, name, batch([value.encode()], timestamp=NOW_MS)).error_code == 0
        read(before | after, again)
    for member in members:
        member.close()
