"""Dead letter queues of share groups (KIP-1191): what is in them, which topics may be one, and what happens if not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.metadata.features import SHARE_VERSION
from minibroker.broker.metadata.partitions import Partition
from minibroker.broker.share import dead_letters
from minibroker.broker.share.dead_letters import DeadLetters
from minibroker.broker.share.runs import GivenUpRecords
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages import metadata_records as records
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.compression import Compression
from minibroker.protocol.records.payload import iterate_records_of_batch
from minibroker.protocol.records.record import Record
from tests.broker.harness import Harness
from tests.broker.share.driving import GROUP, TOPIC, Sharer, configure, offset_of, reading
from tests.clients.share_requests import ACCEPT, REJECT, RELEASE

QUEUE = "dlq.s"
TIME_MS = 1_700_000_000_000


def with_queue(harness: Harness, name: str = QUEUE, **configs: str) -> None:
    """Let the group have a dead letter queue."""
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=SHARE_VERSION, feature_level=2)])
    texts = {f"errors.deadletterqueue.{key.replace('_', '.')}": value for key, value in configs.items()}
    harness.cluster.controller.change_config(
        GROUP_RESOURCE, GROUP, {"errors.deadletterqueue.topic.name": name, **texts}
    )


def with_topic(harness: Harness, name: str = QUEUE, partitions: int = 1, **configs: str) -> None:
    harness.create_topic(name, partitions, **{"errors_deadletterqueue_group_enable": "true", **configs})


def batches_of(harness: Harness, name: str = QUEUE, partition: int = 0) -> list[list[Record]]:
    """The records of each batch of the queue."""
    harness.clock.advance(0)
    if name not in harness.cluster.image.topics:
        return []
    region = harness.partition(name, partition).log.read(0, 1 << 20)
    data = b"" if region is None else region.read()
    return [list(iterate_records_of_batch(data, position)) for position, _ in iterate_batches(data)]


def letters(harness: Harness, **more: Any) -> list[Record]:
    return [record for batch in batches_of(harness, **more) for record in batch]


def offsets(found: list[Record]) -> list[int]:
    return [int(dict(record.headers)["__dlq.errors.offset"] or b"") for record in found]


def test_a_rejected_record_gets_a_dead_letter_that_names_it(harness: Harness) -> None:
    member = reading(harness, "a", "b", "c")
    with_topic(harness)
    with_queue(harness)
    assert member.fetch() == [(0, 2, 1)]
    assert member.acknowledge((0, 2, [ACCEPT, REJECT, ACCEPT])) == 0
    (letter,) = letters(harness)
    assert (letter.key, letter.value, letter.timestamp) == (None, None, harness.clock.wall_ms())
    assert letter.headers == (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.offset", b"1"),
        ("__dlq.errors.group", b"s"),
        ("__dlq.errors.delivery.count", b"1"),
        ("__dlq.errors.message", b"Offset rejected by client."),
    )
    harness.produce(TOPIC, "d")
    assert member.fetch() == [(3, 3, 1)]
    assert member.acknowledge((3, 3, [ACCEPT])) == 0
    assert offset_of(harness)[0] == 3  # nothing is in flight any more


def test_a_record_above_the_delivery_limit_gets_a_dead_letter(harness: Harness) -> None:
    member = reading(harness, "a")
    with_topic(harness)
    with_queue(harness)
    configure(harness, delivery_count_limit="2")
    for count in (1, 2):
        assert letters(harness) == []
        assert member.fetch() == [(0, 0, count)]
        harness.clock.advance(30_001)
    (letter,) = letters(harness)
    assert letter.headers[-2:] == (
        ("__dlq.errors.delivery.count", b"2"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    )
    assert member.fetch() == []


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_dead_letter_may_have_the_key_and_value_of_its_record(harness: Harness, codec: int) -> None:
    member = reading(harness)
    with_topic(harness)
    with_queue(harness, copy_record_enable="true")
    kept = [Record(0, TIME_MS, b"k%d" % index, b"v%d" % index, (("h", b"1"),)) for index in range(3)]
    harness.produce_batch(TOPIC, bytes(build_batch(kept, compression=codec)))
    harness.produce(TOPIC, None)
    assert member.fetch() == [(0, 3, 1)]
    assert member.acknowledge((0, 3, [REJECT, ACCEPT, REJECT, REJECT])) == 0
    found = letters(harness)
    assert [(letter.key, letter.value) for letter in found] == [(b"k0", b"v0"), (b"k2", b"v2"), (None, None)]
    assert found[0].headers[0] == ("__dlq.errors.topic", b"t")
    assert offsets(found) == [0, 2, 3]


def test_records_archived_out_of_order_are_copied_to_their_dead_letters(harness: Harness) -> None:
    member = reading(harness)
    with_topic(harness)
    with_queue(harness, copy_record_enable="true")
    for value in ("a", "b"):
        harness.produce(TOPIC, value)
    source = harness.partition(TOPIC)
    given_up = [GivenUpRecords(1, 1, 2, is_rejected=False), GivenUpRecords(0, 0, 1, is_rejected=True)]
    harness.cluster.shares.dead_letters.write_dead_letters(member.group, source, given_up, lambda: None)
    assert [letter.value for letter in letters(harness)] == [b"a", b"b"]


def test_no_dead_letters_are_written_at_share_version_1(harness: Harness) -> None:
    member = reading(harness, "a")
    with_topic(harness)
    with_queue(harness)
    harness.cluster.commit_metadata_records([records.FeatureLevelRecord(name=SHARE_VERSION, feature_level=1)])
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, [REJECT])) == 0
    assert letters(harness) == []


@pytest.mark.parametrize(
    ("name", "configs", "reason"),
    [
        ("dlq.none", None, "The dead letter topic does not exist"),
        (
            "dlq.s",
            {"errors_deadletterqueue_group_enable": "false"},
            "does not have errors.deadletterqueue.group.enable",
        ),
        ("other", {}, "does not begin with dlq."),
        ("dlq.s", {"cleanup_policy": "compact"}, "INVALID_RECORD"),
    ],
)
def test_a_record_is_archived_although_its_dead_letter_cannot_be_written(
    harness: Harness, caplog: pytest.LogCaptureFixture, name: str, configs: dict[str, str] | None, reason: str
) -> None:
    member = reading(harness, "a")
    if configs is not None:
        with_topic(harness, name, **configs)
    with_queue(harness, name)
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, [REJECT])) == 0
    assert letters(harness, name=name) == []
    (said,) = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    assert said.startswith("1 records of t-0 from 0 on get no dead letters of share group s: ") and reason in said
    harness.produce(TOPIC, "b")
    assert member.fetch() == [(1, 1, 1)]
    assert member.acknowledge((1, 1, [ACCEPT])) == 0
    assert offset_of(harness)[0] == 1


def test_the_dead_letter_queue_is_created_if_the_cluster_allows_it(tmp_path: Path) -> None:
    with Harness(tmp_path, settings={"errors.deadletterqueue.auto.create.topics.enable": "true"}) as harness:
        member = reading(harness, "a")
        with_queue(harness)
        assert member.fetch() == [(0, 0, 1)]
        assert member.acknowledge((0, 0, [REJECT])) == 0
        assert offsets(letters(harness)) == [0]
        assert harness.cluster.image.topics[QUEUE].overrides == {
            "errors.deadletterqueue.group.enable": "true",
            "message.timestamp.type": "CreateTime",
        }


def test_dead_letters_are_split_into_batches_that_the_queue_accepts(harness: Harness) -> None:
    member = reading(harness, *map(str, range(50)))
    with_topic(harness, max_message_bytes="2000")
    with_queue(harness)
    assert member.fetch() == [(0, 49, 1)]
    assert member.acknowledge((0, 49, [REJECT])) == 0
    found = batches_of(harness)
    assert len(found) > 1
    assert offsets([letter for batch in found for letter in batch]) == list(range(50))


def test_dead_letters_go_to_the_partition_of_the_same_index_modulo_the_count(harness: Harness) -> None:
    member = reading(harness, "a")
    with_topic(harness, partitions=3)
    with_queue(harness)
    harness.create_topic("other", 5)
    source = harness.partition("other", 4)
    given_up = GivenUpRecords(7, 7, 1, is_rejected=False)
    harness.cluster.shares.dead_letters.write_dead_letters(member.group, source, [given_up], lambda: None)
    assert [offsets(letters(harness, partition=index)) for index in range(3)] == [[], [7], []]


def test_records_being_archived_at_a_crash_get_their_dead_letters_later(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = reading(harness, "a", "b")
    with_topic(harness)
    with_queue(harness)
    assert member.fetch() == [(0, 1, 1)]
    with monkeypatch.context() as patched:
        patched.setattr(DeadLetters, "write_dead_letters", lambda *_: None)
        assert member.acknowledge((0, 1, [REJECT, RELEASE])) == 0
    assert offset_of(harness)[0] == 0
    harness.restart(crash=True)
    again = Sharer(harness)
    assert again.beat(TOPIC).error_code == 0
    assert again.fetch() == [(1, 1, 2)]
    (letter,) = letters(harness)
    assert dict(letter.headers)["__dlq.errors.message"] == b"Offset rejected by client."
    assert offsets([letter]) == [0]


def test_a_dead_letter_queue_without_a_leader_is_retried(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    member = reading(harness, "a")
    with_topic(harness)
    with_queue(harness)
    found, refusals = dead_letters.get_led_partition, [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2

    def led(*arguments: Any) -> Partition:
        if refusals:
            raise KafkaError(refusals.pop())
        return found(*arguments)

    monkeypatch.setattr(dead_letters, "get_led_partition", led)
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, [REJECT])) == 0
    for wait_ms, count in ((0, 0), (1000, 0), (1999, 0), (1, 1)):
        harness.clock.advance(wait_ms)
        assert len(letters(harness)) == count


def test_locks_are_not_renewed_if_the_group_does_not_allow_it(harness: Harness) -> None:
    member = reading(harness, "a")
    configure(harness, renew_acknowledge_enable="false")
    assert member.fetch() == [(0, 0, 1)]
    assert member.acknowledge((0, 0, [4]), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert member.acknowledge((0, 0, [ACCEPT])) == 0
