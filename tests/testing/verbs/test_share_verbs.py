"""Share groups in the hand of a test: what was delivered to a real member, locks that end, waits and faults."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from minibroker.protocol.errors import KafkaError
from minibroker.testing import Broker
from minibroker.testing.reports.failure_report import format_report
from minibroker.testing.seen.exchange import Exchange
from minibroker.testing.seen.waiting import Expired
from minibroker.testing.verbs.share_deliveries import Delivery
from tests.clients.share_consumers import share_consumer
from tests.testing.support import settings, until

pytestmark = pytest.mark.usefixtures("leaves_sockets")

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"group.share.heartbeat.interval.ms": 100, "group.share.min.heartbeat.interval.ms": 100}) as broker:
        broker.journal.on()
        broker.share_group("g").configure(share_auto_offset_reset="earliest")
        broker.produce("t", "a", "b", "c")
        yield broker


@pytest.fixture
def consumer(broker: Broker) -> Iterator[ShareConsumer]:
    with consumer_of(broker) as consumer:
        yield consumer


def consumer_of(broker: Broker) -> AbstractContextManager[ShareConsumer]:
    return share_consumer(settings(broker, **{"group.id": "g", "share.acknowledgement.mode": "explicit"}), "t")


def read(consumer: ShareConsumer) -> list[Message]:
    """The next records that it gets."""
    found: list[Message] = []
    until(lambda: found.extend(consumer.poll(0.2)) or found)  # type: ignore[func-returns-value]
    assert [message.error() for message in found] == [None] * len(found)
    return found


def acknowledge(consumer: ShareConsumer, messages: list[Message], *kinds: AcknowledgeType) -> list[object]:
    """The outcome for each partition, None if it is well."""
    for message, kind in zip(messages, kinds or [ACCEPT] * len(messages), strict=True):
        consumer.acknowledge(message, kind)
    return list(consumer.commit_sync(20).values())


def states(broker: Broker) -> list[tuple[int, int, str, int]]:
    return [each[2:6] for each in broker.share_group("g").deliveries("t")]


# --- what was delivered -------------------------------------------------------------------------------


def test_deliveries_of_a_share_group_show_the_state_of_each_record(broker: Broker, consumer: ShareConsumer) -> None:
    messages = read(consumer)
    (member,) = broker.wait_for_group("g", 1)
    assert broker.share_group("g").deliveries() == [Delivery("t", 0, 0, 2, "acquired", 1, member)]
    assert acknowledge(consumer, messages, ACCEPT, REJECT, RELEASE) == [None]
    settled = [(0, 0, "acknowledged", 1), (1, 1, "archived", 1)]
    assert states(broker) == [*settled, (2, 2, "available", 1)]
    again = read(consumer)
    assert states(broker) == [*settled, (2, 2, "acquired", 2)]
    assert acknowledge(consumer, again) == [None]
    broker.restart()
    assert states(broker) == [*settled, (2, 2, "acknowledged", 2)]
    assert broker.share_group("g").deliveries("other") == broker.share_group("other").deliveries() == []
    broker.reset()
    assert states(broker) == []


def test_records_with_expired_locks_are_redelivered(broker: Broker, consumer: ShareConsumer) -> None:
    group, messages = broker.share_group("g"), read(consumer)
    assert group.expire_locks() == 3
    assert states(broker) == [(0, 2, "available", 1)]
    (outcome,) = acknowledge(consumer, messages)
    assert "INVALID_RECORD_STATE" in str(outcome)
    assert [message.value() for message in read(consumer)] == [b"a", b"b", b"c"]
    again = group.expect_redelivered("t", 3)
    assert [(each.text, each.deliveries, each.state) for each in again] == [(text, 2, "acquired") for text in "abc"]
    assert str(again[0]).endswith(f"value 'a', delivered 2 times, acquired by {again[0].member}")
    assert group.expire_locks() == 3 and group.expire_locks() == 0


def test_redeliveries_can_be_expected_after_the_records_were_acknowledged(
    broker: Broker, consumer: ShareConsumer
) -> None:
    messages = read(consumer)
    assert acknowledge(consumer, messages, ACCEPT, RELEASE, ACCEPT) == [None]
    assert acknowledge(consumer, read(consumer)) == [None]
    group = broker.share_group("g")
    assert group.wait_until_settled("t", 3) == 3
    assert [(each.text, each.state) for each in group.expect_redelivered("t")] == [("b", "acknowledged")]
    assert [each.deliveries for each in group.expect_redelivered("t", 3, deliveries=1)] == [1, 2, 1]
    assert group.expect_redelivered("t", 0) == []


def test_delivery_counts_of_a_recreated_share_group_start_anew(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        acknowledge(consumer, read(consumer))
    broker.wait_for_group("g", 0, "Empty")
    set_start(broker, "t", 1)
    assert states(broker) == []
    with consumer_of(broker) as consumer:
        acknowledge(consumer, read(consumer))
    assert states(broker) == [(1, 2, "acknowledged", 1)]


def set_start(broker: Broker, topic: str, offset: int) -> None:
    from minibroker.client.blocking import Client
    from minibroker.client.connection_settings import ClientSettings
    from minibroker.protocol.messages.share_groups import AlterShareGroupOffsetsRequest as Request

    partition = Request.AlterShareGroupOffsetsRequestTopic.AlterShareGroupOffsetsRequestPartition(start_offset=offset)
    topics = [Request.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])]
    with Client(ClientSettings({"bootstrap.servers": broker.bootstrap_servers}, "test")) as client:
        assert client.request(Request(group_id="g", topics=topics)).error_code == 0


def test_a_failure_report_shows_the_delivered_records(broker: Broker, consumer: ShareConsumer) -> None:
    read(consumer)
    (member,) = broker.wait_for_group("g", 1)
    report = format_report(broker)
    assert "share group g: Stable, 1 member\n" in report
    assert f"\n  t-0 offsets 0 to 2: delivered 1 times, acquired by {member}\n" in report


# --- waits --------------------------------------------------------------------------------------------


def test_share_members_are_awaited(broker: Broker, consumer: ShareConsumer) -> None:
    group = broker.share_group("g")
    with consumer_of(broker) as other:
        for each in (consumer, other):
            each.poll(0.1)
        assert len(broker.wait_for_group("g", 2, timeout="20 s")) == 2
        assigned = group.wait_until_assigned("t", timeout="20 s")
        assert {0} == {index for indexes in assigned.values() for index in indexes}


def test_a_share_group_is_awaited_until_caught_up_although_it_commits_no_offsets(
    broker: Broker, consumer: ShareConsumer
) -> None:
    acknowledge(consumer, read(consumer), ACCEPT, REJECT, ACCEPT)
    broker.wait_until_caught_up("g", "t")
    broker.produce("t", "d")
    with pytest.raises(Expired, match="is behind in t-0 by 1"):
        broker.wait_until_caught_up("g", "t", "10 ms")
    with pytest.raises(ValueError, match="share group 'g' commits no offsets: use wait_until_caught_up"):
        broker.wait_for_commit("g", "t", timeout="20 s")


EXPIRING: list[tuple[Callable[[Broker], object], str]] = [
    (
        lambda b: b.share_group("g").wait_until_assigned("t", 2, "10 ms"),
        "t was expected to be assigned to 2 members of group 'g', and is assigned so: {}",
    ),
    (
        lambda b: b.share_group("g").wait_until_settled("t", 3, timeout="10 ms"),
        "group 'g' was expected to settle t-0 up to offset 3, and is at 0",
    ),
    (
        lambda b: b.share_group("g").expect_redelivered("t", 2, timeout="10 ms"),
        "2 records were expected to be delivered 2 times from t to group 'g', and there are 0",
    ),
]


@pytest.mark.parametrize(("wait", "words"), EXPIRING)
def test_a_wait_that_times_out_reports_the_state_reached(
    broker: Broker, wait: Callable[[Broker], object], words: str
) -> None:
    with pytest.raises(Expired) as raised:
        wait(broker)
    assert str(raised.value) == f"after 0.01 s: {words}"


def test_waiting_for_a_redelivery_that_does_not_happen_reports_the_deliveries(
    broker: Broker, consumer: ShareConsumer
) -> None:
    read(consumer)
    with pytest.raises(Expired, match="and there are 0\n  t-0 offset 0: .* delivered 1 times, acquired by "):
        broker.share_group("g").expect_redelivered("t", timeout="10 ms")
    with pytest.raises(ValueError, match="deliveries is at least 1, and cannot be 0"):
        broker.share_group("g").expect_redelivered("t", deliveries=0)


def test_each_share_wait_can_be_awaited() -> None:
    async def waits() -> None:
        async with Broker() as broker:
            group = broker.share_group("g")
            await group.aconfigure(share_auto_offset_reset="earliest", share_delivery_count_limit=2)
            await broker.aproduce("t", "a")
            stack = ExitStack()
            consumer = stack.enter_context(consumer_of(broker))
            waiting = asyncio.create_task(group.aexpect_redelivered("t", timeout="30 s"))
            messages = await asyncio.to_thread(read, consumer)
            assert len(await group.await_until_assigned("t")) == 1
            group.expire_locks()
            await asyncio.to_thread(acknowledge, consumer, messages)  # which is too late
            await asyncio.to_thread(read, consumer)
            assert [each.text for each in await waiting] == ["a"]
            settled = asyncio.create_task(group.await_until_settled("t", 1, timeout="30 s"))
            await asyncio.sleep(0)
            assert group.expire_locks() == 1  # which ends the last delivery that is allowed
            assert await settled == 1
            assert [each.state for each in group.deliveries()] == ["archived"]
            await asyncio.to_thread(stack.close)

    asyncio.run(waits())


# --- the journal ----------------------------------------------------------------------------------------


def test_rejected_acknowledgements_in_share_fetch_are_in_the_journal(broker: Broker) -> None:
    with share_consumer(settings(broker, **{"group.id": "g"}), "t") as consumer:
        read(consumer)
        broker.share_group("g").expire_locks()
        consumer.poll(0.2)  # which acknowledges what the last one returned
        (seen,) = broker.wait_for_requests(api=None, timeout="20 s", group="g", error="INVALID_RECORD_STATE")
        assert seen.api == "ShareFetch" and seen.groups == {"g"}
    assert broker.requests("ShareGroupHeartbeat", group="g") and not broker.requests(group="other")


# --- dead letters -----------------------------------------------------------------------------------------


def test_dead_letters_name_their_records(broker: Broker, consumer: ShareConsumer) -> None:
    group = broker.share_group("g")
    assert group.dead_letters() == [] and group.collect_dead_letters() == "dlq.g"
    assert acknowledge(consumer, read(consumer), ACCEPT, REJECT, ACCEPT) == [None]
    (letter,) = group.expect_dead_letters()
    assert letter.text == "b" and (letter.source_topic, letter.source_partition, letter.source_offset) == ("t", 0, 1)
    assert str(letter) == "t-0 offset 1, delivered 1 times: Offset rejected by client."
    broker.produce("dlq.g", "not one")
    assert group.dead_letters() == group.expect_dead_letters(0) == [letter]
    assert broker.share_group("other").dead_letters() == []
    with pytest.raises(Expired, match="2 dead letters were expected of group 'g', and there is 1\n  t-0 offset 1, "):
        group.expect_dead_letters(2, "10 ms")


def test_a_record_above_the_delivery_limit_gets_a_dead_letter_without_its_value(
    broker: Broker, consumer: ShareConsumer
) -> None:
    group = broker.share_group("g")
    group.configure(share_delivery_count_limit=2)
    broker.create_topic("dlq.mine", errors_deadletterqueue_group_enable=True)
    assert group.collect_dead_letters("dlq.mine", copies=False) == "dlq.mine"
    for _ in range(2):
        acknowledge(consumer, read(consumer), RELEASE, ACCEPT, ACCEPT)
        broker.produce("t", "d", "e")
    (letter,) = group.expect_dead_letters()
    assert (letter.value, letter.source_offset, letter.deliveries) == (None, 0, 2)
    assert letter.reason == "Offset delivery count exceeded the threshold."


# --- the methods of all groups --------------------------------------------------------------------------


def test_a_share_member_evicted_by_a_test_rejoins(broker: Broker, consumer: ShareConsumer) -> None:
    read(consumer)
    (member,) = broker.wait_for_group("g", 1)
    with pytest.raises(KafkaError, match="group 'g' has no member 'other'"):
        broker.evict("g", "other")
    assert broker.evict("g", member) == [member]
    assert states(broker) == [(0, 2, "acquired", 1)]  # until the lock ends
    broker.wait_for_requests("ShareGroupHeartbeat", 1, "20 s", error="UNKNOWN_MEMBER_ID")
    broker.wait_for_group("g", 1, timeout="20 s")


def test_a_rebalance_starts_a_new_group_epoch(broker: Broker, consumer: ShareConsumer) -> None:
    read(consumer)
    member = broker.call_on_loop(
        lambda: next(iter(broker.running.cluster.groups.get_share_group("g").members.values()))
    )
    broker.force_rebalance("g")
    broker.wait_for_requests("ShareGroupHeartbeat", timeout="20 s", where=lambda each: _epoch(each) > member.epoch)
    broker.share_group("g").wait_until_assigned("t", 1)


def _epoch(exchange: Exchange) -> int:
    return -1 if exchange.answer is None else int(exchange.answer.member_epoch)


def test_slow_joins_delays_the_join_of_a_share_member(broker: Broker, consumer: ShareConsumer) -> None:
    fault = broker.slow_joins("g", "1 hour")
    consumer.poll(0.1)
    fault.wait_for_hits(1, "20 s")
    with pytest.raises(Expired, match="there is no such group"):
        broker.wait_for_group("g", timeout="10 ms")
    fault.remove()
    broker.clock.advance("1 hour")
    assert len(read(consumer)) == 3


# --- what cannot be -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda b: b.share_group("c").expire_locks(),
        lambda b: b.share_group("c").deliveries(),
        lambda b: b.share_group("c").wait_until_settled("t", 1, timeout="20 s"),
        lambda b: b.share_group("c").expect_redelivered("t", timeout="20 s"),
    ],
)
def test_a_group_of_another_type_is_rejected(broker: Broker, call: Callable[[Broker], object]) -> None:
    broker.call_on_loop(lambda: broker.running.cluster.groups.find_or_make_classic_group("c"))
    with pytest.raises(KafkaError, match="group 'c' is a classic group"):
        call(broker)


def test_locks_of_an_unknown_group_cannot_be_expired(broker: Broker) -> None:
    with pytest.raises(KafkaError, match="there is no group 'no'"):
        broker.share_group("no").expire_locks()
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        broker.share_group("g").configure(share_auto_offset_reset="nowhere")


# --- faults ---------------------------------------------------------------------------------------------


def session_errors(broker: Broker) -> list[object]:
    return [each for each in broker.requests() if "SHARE_SESSION" in str(each.errors)]


def test_a_share_fetch_fails_for_a_topic_and_its_session_continues(broker: Broker, consumer: ShareConsumer) -> None:
    fault = broker.faults.add(api="ShareFetch", topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2)
    messages = read(consumer)
    assert fault.hits == 2 and states(broker) == [(0, 2, "acquired", 1)]
    fault = broker.faults.add(api="ShareFetch", topic="t", partition=0, error="KAFKA_STORAGE_ERROR", once=True)
    assert acknowledge(consumer, messages) == [None]
    broker.produce("t", "d")
    assert [message.value() for message in read(consumer)] == [b"d"]
    assert fault.hits == 1 and states(broker)[1:] == [(3, 3, "acquired", 1)]
    assert session_errors(broker) == []


def test_only_the_faulty_partition_of_a_share_session_fails() -> None:
    with Broker({"num.partitions": 2}) as broker:
        broker.journal.on()
        broker.share_group("g").configure(share_auto_offset_reset="earliest")
        broker.produce("t", "zero")
        with consumer_of(broker) as consumer:
            acknowledge(consumer, read(consumer))
            fault = broker.faults.add(api="ShareFetch", partition=1, error="KAFKA_STORAGE_ERROR")
            broker.produce("t", "one", partition=1)
            broker.produce("t", "two")
            messages = read(consumer)
            assert [message.value() for message in messages] == [b"two"]
            acknowledge(consumer, messages)
            consumer.poll(0.1)
            assert fault.hits and states(broker) == [(0, 1, "acknowledged", 1)]
            fault.remove()
            assert [message.value() for message in read(consumer)] == [b"one"]
            assert session_errors(broker) == []


def test_records_of_a_lost_share_fetch_are_redelivered_after_their_locks_expire(
    broker: Broker, consumer: ShareConsumer
) -> None:
    fault = broker.faults.add(api="ShareFetch", error="KAFKA_STORAGE_ERROR", when="after", nth=1)
    assert list(consumer.poll(0.5)) == []
    fault.wait_for_hits(1, "20 s")
    assert states(broker) == [(0, 2, "acquired", 1)]
    broker.share_group("g").expire_locks()
    assert len(read(consumer)) == 3 and states(broker) == [(0, 2, "acquired", 2)]
    assert session_errors(broker) == []


@pytest.mark.parametrize(("when", "state"), [("before", "acquired"), ("after", "acknowledged")])
def test_a_fault_fails_a_share_acknowledgement(broker: Broker, consumer: ShareConsumer, when: str, state: str) -> None:
    broker.faults.add(api="ShareAcknowledge", topic="t", error="INVALID_RECORD_STATE", when=when, once=True)
    (outcome,) = acknowledge(consumer, read(consumer))
    assert "INVALID_RECORD_STATE" in str(outcome)
    assert states(broker) == [(0, 2, state, 1)]
    broker.share_group("g").expire_locks()
    broker.produce("t", "d")
    assert b"d" in [message.value() for message in read(consumer)]
    assert session_errors(broker) == []


def test_a_batch_of_a_share_fetch_is_corrupted_by_a_fault(broker: Broker, consumer: ShareConsumer) -> None:
    broker.faults.add(api="ShareFetch", corrupt="crc", once=True)
    while not (spoilt := broker.requests("ShareFetch", where=lambda each: each.faults)):
        consumer.poll(0.5)  # librdkafka does not check it here
    (seen,) = spoilt
    (topic,) = seen.answer.responses
    (partition,) = topic.partitions
    stored = broker.directory.joinpath("t-0", "00000000000000000000.log").read_bytes()
    sent = bytes(partition.records)
    assert sent != stored and sent[:17] == stored[:17] and sent[21:] == stored[21:]
