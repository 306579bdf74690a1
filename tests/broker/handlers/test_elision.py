"""`record.attributes.elide`: what is stored, and who gets it as it is stored."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.records.batch import ELIDED_BIT, set_checksum
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.control import make_transaction_marker
from minibroker.protocol.records.elision import elide_attributes
from minibroker.protocol.records.formats import (
    check_batch_or_message,
    iterate_batches_in_any_format,
    iterate_records_in_any_format,
)
from minibroker.protocol.records.record import Record
from minibroker.storage.compaction.cleaning import LogCleaning
from tests.broker.handlers.fetching import VERSIONS, answers_in, fetch, fetch_of
from tests.broker.harness import Harness
from tests.cases import for_each
from tests.protocol.records.samples import CODECS, T
from tests.storage.compaction.support import clean
from tests.storage.support import append

TOPIC = 2
SET, DELETE = 0, 1
FIRST_FLEXIBLE = 12

RECORDS = [Record(index, T + index, b"k%d" % index, b"v" * index, (("h", b"1"),)) for index in range(4)]
BARE = [record._replace(headers=()) for record in RECORDS]


def alter(harness: Harness, operation: int, value: str | None = None) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(name="record.attributes.elide", config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=TOPIC, resource_name="t", configs=[config])]
    )
    (answer,) = harness.request(request).responses
    assert answer.error_code == 0, answer


def stored(harness: Harness) -> list[Any]:
    """The headers of what is stored."""
    region = harness.partition("t").log.read(0, 1 << 20)
    assert region is not None
    return [header for _, header in iterate_batches_in_any_format(region.read())]


def fetched(answer: Any) -> tuple[list[Record], list[bool]]:
    """The records, and of each batch whether it came without attributes."""
    assert answer.error_code == 0
    data, found, elided = bytes(answer.records), [], []
    for position, _ in iterate_batches_in_any_format(data):
        elided.append(check_batch_or_message(data, position).attributes & ELIDED_BIT != 0)
        found += iterate_records_in_any_format(data, position)
    return found, elided


@pytest.fixture
def eliding(harness: Harness) -> Harness:
    """A topic "t" that stores batches without attributes; it has one of each codec."""
    harness.create_topic("t", record_attributes_elide="true")
    for codec in CODECS[:4]:
        assert harness.produce_batch("t", build_batch(RECORDS, compression=codec)).error_code == 0
    return harness


def renumbered(records: list[Record], times: int) -> list[Record]:
    return [record._replace(offset=index) for index, record in enumerate(records * times)]


@for_each("version", VERSIONS)
def test_all_clients_get_the_elided_attributes_byte_restored(eliding: Harness, version: int) -> None:
    assert all(header.attributes & ELIDED_BIT for header in stored(eliding))
    found, elided = fetched(fetch(eliding, {("t", 0): 0}, version=version)["t", 0])
    expected = renumbered(RECORDS if version >= 4 else BARE, 4)
    if version < 2:
        expected = [record._replace(timestamp=-1) for record in expected]
    assert (found, any(elided)) == (expected, False)


@for_each("version", [version for version in VERSIONS if version >= FIRST_FLEXIBLE])
def test_fetches_that_allow_elided_attributes_get_the_stored_bytes(eliding: Harness, version: int) -> None:
    answer = fetch(eliding, {("t", 0): 0}, version=version, records_without_attributes=True)["t", 0]
    assert fetched(answer) == (renumbered(RECORDS, 4), [True] * 4)
    region = eliding.partition("t").log.read(0, 1 << 20)
    assert region is not None
    assert answer.records == region.read()


def test_partition_max_bytes_counts_the_converted_batches(eliding: Harness) -> None:
    sizes = [len(build_batch(RECORDS, compression=codec)) for codec in CODECS[:2]]
    found, elided = fetched(fetch(eliding, {("t", 0): 0}, partition_max_bytes=sum(sizes) - 1)["t", 0])
    assert (len(found), elided) == (4, [False])
    found, elided = fetched(fetch(eliding, {("t", 0): 0}, partition_max_bytes=1)["t", 0])
    assert (len(found), elided) == (4, [False])


def test_elision_leaves_markers_and_read_committed_fetches_unchanged(eliding: Harness) -> None:
    marker = make_transaction_marker(committed=True, coordinator_epoch=0, timestamp=T)
    log = eliding.partition("t").log
    append(log, build_batch([marker], control=True, transactional=True, producer_id=1, producer_epoch=0))
    log.last_stable_offset = 16
    found, _ = fetched(fetch(eliding, {("t", 0): 0}, isolation_level=1)["t", 0])
    assert len(found) == 16
    answer = fetch(eliding, {("t", 0): 16})["t", 0]
    assert [header.is_control for _, header in iterate_batches_in_any_format(bytes(answer.records))] == [True]


def test_topics_without_elision_store_batches_unchanged(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce_batch("t", build_batch(RECORDS))
    assert [header.attributes for header in stored(harness)] == [0]
    answer = fetch(harness, {("t", 0): 0}, records_without_attributes=True)["t", 0]
    assert fetched(answer) == (RECORDS, [False])


def test_an_elision_bit_set_by_a_client_is_cleared_in_a_topic_without_elision(harness: Harness) -> None:
    harness.create_topic("t")
    data = build_batch(RECORDS)
    data[22] |= ELIDED_BIT

    set_checksum(data, 0, len(data))
    assert harness.produce_batch("t", data).error_code == 0
    assert fetched(fetch(harness, {("t", 0): 0})["t", 0]) == (RECORDS, [False])


def test_a_topic_with_elision_accepts_elided_batches(eliding: Harness) -> None:
    data = build_batch(RECORDS)
    elided = elide_attributes(data, check_batch_or_message(data))
    assert elided is not None
    assert eliding.produce_batch("t", bytes(elided)).error_code == 0
    assert eliding.produce_batch("t", bytes(elided[:-1])).error_code == ErrorCode.CORRUPT_MESSAGE
    assert fetched(fetch(eliding, {("t", 0): 0})["t", 0])[0] == renumbered(RECORDS, 5)


def test_elided_batches_are_still_converted_after_the_config_is_deleted(eliding: Harness) -> None:
    alter(eliding, DELETE)
    eliding.produce_batch("t", build_batch(RECORDS))
    for restarted in (False, True):
        if restarted:
            eliding.restart()
        assert [header.attributes & ELIDED_BIT != 0 for header in stored(eliding)] == [True] * 4 + [False]
        assert fetched(fetch(eliding, {("t", 0): 0})["t", 0]) == (renumbered(RECORDS, 5), [False] * 5)
    assert eliding.cluster.image.topics["t"].overrides["record.attributes.elide"] == "false"


def test_elision_can_be_enabled_for_an_existing_topic(harness: Harness) -> None:
    harness.create_topic("t")
    harness.produce_batch("t", build_batch(RECORDS))
    alter(harness, SET, "true")
    harness.produce_batch("t", build_batch(RECORDS))
    assert [header.attributes for header in stored(harness)] == [0, ELIDED_BIT]
    assert fetched(fetch(harness, {("t", 0): 0})["t", 0]) == (renumbered(RECORDS, 2), [False, False])


def test_the_cleaner_rewrites_batches_to_the_current_elision_config(harness: Harness) -> None:
    harness.create_topic("t", cleanup_policy="compact")
    harness.produce_batch("t", build_batch(RECORDS))
    harness.produce_batch("t", build_batch(RECORDS[:2]))
    alter(harness, SET, "true")
    log = harness.partition("t").log
    log.roll_segment_if_used()
    cleaning = clean(log, harness.clock.wall_ms())
    assert isinstance(cleaning, LogCleaning)
    assert [header.attributes for header in stored(harness)] == [ELIDED_BIT, ELIDED_BIT]
    found, _ = fetched(fetch(harness, {("t", 0): 0})["t", 0])
    assert [record.offset for record in found] == [2, 3, 4, 5]
    alter(harness, SET, "false")
    harness.produce_batch("t", build_batch(RECORDS[2:3]))
    log.roll_segment_if_used()
    clean(log, harness.clock.wall_ms())
    found, elided = fetched(fetch(harness, {("t", 0): 0})["t", 0])
    assert ([record.offset for record in found], any(elided)) == ([3, 4, 5, 6], False)


# --- in steps -----------------------------------------------------------------------------------

MANY = 5000


@pytest.mark.parametrize("offset", [0, 16])
def test_a_large_elided_batch_is_restored_in_steps(eliding: Harness, offset: int) -> None:
    eliding.produce("t", *["a"] * MANY)
    before = eliding.dispatcher.slicer.steps
    found, _ = fetched(fetch(eliding, {("t", 0): offset})["t", 0])
    assert len(found) == MANY + 16 - offset
    assert eliding.dispatcher.slicer.steps - before >= MANY // 1000


@pytest.mark.parametrize("begins", ["before", "meanwhile"])
def test_a_delayed_fetch_restores_elided_batches_in_steps(harness: Harness, begins: str) -> None:
    harness.create_topic("t")
    if begins == "before":
        alter(harness, SET, "true")
    waiting = harness.request(fetch_of(harness, {("t", 0): 0}, max_wait_ms=500))
    if begins == "meanwhile":
        alter(harness, SET, "true")
    before = harness.dispatcher.slicer.steps
    harness.produce("t", *["a"] * MANY)
    (answer,) = answers_in(harness, waiting.response()).values()
    found, elided = fetched(answer)
    assert (len(found), elided) == (MANY, [False])
    assert harness.dispatcher.slicer.steps - before >= MANY // 1000
    assert not harness.partition("t").waiters


@pytest.mark.parametrize("ended_by", ["time", "client"])
def test_a_delayed_fetch_ends_as_usual_if_elision_is_enabled_meanwhile(harness: Harness, ended_by: str) -> None:
    harness.create_topic("t")
    waiting = harness.request(fetch_of(harness, {("t", 0): 0}, max_wait_ms=500))
    alter(harness, SET, "true")
    if ended_by == "client":
        waiting.go_away()
    harness.clock.advance(500)
    assert waiting.done == (ended_by == "time")
    assert not harness.partition("t").waiters
