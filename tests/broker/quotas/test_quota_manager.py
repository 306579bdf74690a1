"""Clients over their quotas: answered at once, with the time for which their connection is then muted."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.quotas import quota_manager
from minibroker.broker.quotas.quota_manager import find_quota_of_client
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.metadata import MetadataRequest
from minibroker.protocol.messages.quotas import AlterClientQuotasRequest
from minibroker.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from tests.broker.handlers.fetching import VERSIONS, answers_in, fetch_of, values_in
from tests.broker.harness import Client, Harness, batch, frame_of
from tests.broker.requests.turned_loop import LoopClient, produce_of
from tests.cases import for_each

PRODUCE, FETCH, METADATA = 9, 12, 9
EVERY_CLIENT = (("client-id", None),)
EXCEEDED = ErrorCode.THROTTLING_QUOTA_EXCEEDED
Topic = CreateTopicsRequest.CreatableTopic


def set_quotas(harness: Harness, parts: tuple[tuple[str, str | None], ...] = EVERY_CLIENT, **values: float) -> None:
    shape = AlterClientQuotasRequest.EntryData
    entry = shape(
        entity=[shape.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[shape.OpData(key=key, value=value, remove=not value) for key, value in values.items()],
    )
    (altered,) = harness.request(AlterClientQuotasRequest(entries=[entry])).entries
    assert altered.error_code == ErrorCode.NONE, altered


@pytest.fixture
def client(harness: Harness) -> Client:
    """One that asks of a cluster with the topic t, in which "first" is."""
    harness.create_topic("t")
    harness.produce("t", "first")
    return harness.client()


def ask(client: Client, request: Any, version: int | None = None) -> Any:
    client.send(request, version)
    ((_, answer),) = client.responses()
    return answer


def muted_ms(harness: Harness, client: Client) -> int:
    """Advance the clock until the client's next request is answered; return for how long that was, in tens of ms."""
    client.send(ApiVersionsRequest(), 0)
    for waited_ms in range(0, 1_000_000, 10):
        if list(client.responses()):
            return waited_ms
        harness.clock.advance(10)
        client.outlet.run_soon()
    raise AssertionError("it is muted for ever")


# --- which quota ------------------------------------------------------------------------------------------------------

LEVELS = [
    ((("user", "u"), ("client-id", "c")), ("u", "c")),
    ((("user", "u"), ("client-id", None)), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("user", None), ("client-id", "c")), ("u", "c")),
    ((("user", None), ("client-id", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


@for_each("first", range(len(LEVELS)))
def test_the_most_specific_quota_applies(first: int) -> None:
    quotas = {frozenset(parts): {"x": float(number)} for number, (parts, _) in enumerate(LEVELS) if number >= first}
    quotas[frozenset({("user", "u"), ("client-id", "c")})] = {"other": 1.0} | (
        quotas.get(frozenset(LEVELS[0][0])) or {}
    )
    assert find_quota_of_client(quotas, "x", "u", "c") == (first, LEVELS[first][1])


def test_quotas_of_other_users_and_client_ids_have_no_effect() -> None:
    quotas = {frozenset({("user", "v")}): {"x": 1.0}, frozenset({("client-id", "d")}): {"x": 1.0}}
    assert find_quota_of_client(quotas, "x", "u", "c") is None


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_a_producer_over_its_quota_is_answered_immediately_and_then_muted(harness: Harness, client: Client) -> None:
    set_quotas(harness, producer_byte_rate=100)
    answer = ask(client, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert harness.partition("t", 0).log.log_end_offset == 2
    assert 10_000 < answer.throttle_time_ms < 15_000
    assert 0 <= muted_ms(harness, client) - answer.throttle_time_ms < 10


def test_a_producer_within_its_quota_is_not_throttled(harness: Harness, client: Client) -> None:
    set_quotas(harness, producer_byte_rate=1000)
    assert ask(client, produce_of({("t", 0): batch("x")}), PRODUCE).throttle_time_ms == 0
    assert muted_ms(harness, client) == 0


def test_a_producer_with_acks_0_over_its_quota_is_muted(harness: Harness, client: Client) -> None:
    set_quotas(harness, producer_byte_rate=100)
    client.send_bytes(frame_of(produce_of({("t", 0): batch("x" * 2000)}, acks=0), PRODUCE))
    assert 10_000 < muted_ms(harness, client) < 15_000


def test_requests_after_one_over_the_quota_wait(harness: Harness, client: Client) -> None:
    set_quotas(harness, producer_byte_rate=100)
    several = LoopClient(harness)
    several.read(*((number, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE) for number in range(2)))
    harness.end_turn()
    assert [number for number, _ in several.responses()] == [0]
    harness.clock.advance(60_000)
    harness.end_turn()
    assert [number for number, _ in several.responses()] == [1]


def test_a_new_quota_applies_immediately_to_a_known_producer(harness: Harness, client: Client) -> None:
    for _ in range(3):
        assert ask(client, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE).throttle_time_ms == 0
    set_quotas(harness, producer_byte_rate=100)
    for _ in range(3):
        assert ask(client, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE).throttle_time_ms > 10_000
        harness.clock.advance(100_000)
        client.outlet.run_soon()
    set_quotas(harness, producer_byte_rate=0)
    assert ask(client, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE).throttle_time_ms == 0


def test_a_consumer_over_its_quota_gets_an_empty_response_and_the_records_later(
    harness: Harness, client: Client
) -> None:
    harness.produce("t", "x" * 3000)
    set_quotas(harness, consumer_byte_rate=100)
    answer = ask(client, fetch_of(harness, {("t", 0): 1}), FETCH)
    assert (answer.responses, answer.session_id, answer.error_code) == ([], 0, ErrorCode.NONE)
    assert answer.throttle_time_ms > 10_000
    assert muted_ms(harness, client) >= answer.throttle_time_ms
    set_quotas(harness, consumer_byte_rate=1000)
    found = answers_in(harness, ask(client, fetch_of(harness, {("t", 0): 1}), FETCH))["t", 0]
    assert values_in(found) == ["x" * 3000]


def test_a_fetch_response_is_limited_by_the_quota(harness: Harness, client: Client) -> None:
    for _ in range(5):
        harness.produce("t", "x" * 3000)
    set_quotas(harness, consumer_byte_rate=700)
    answer = ask(client, fetch_of(harness, {("t", 0): 1}), FETCH)
    assert answer.throttle_time_ms == 0
    assert len(values_in(answers_in(harness, answer)["t", 0])) == 2


@pytest.fixture
def charged(harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of answers that the quota of consumers, who have a high one, is charged with."""
    set_quotas(harness, consumer_byte_rate=1e9)
    sizes: list[int] = []
    manager = harness.cluster.quotas
    charge = manager.charge_fetched_bytes

    def noted(client: Any, usage: Any, size_bytes: int) -> bool:
        sizes.append(size_bytes)
        return charge(client, usage, size_bytes)

    monkeypatch.setattr(manager, "charge_fetched_bytes", noted)
    return sizes


@pytest.mark.parametrize("version", [0, 4, 11, 12, VERSIONS[-1]])
@pytest.mark.parametrize("count", [1, 3, 130, 300])
def test_a_consumer_is_charged_with_the_size_of_the_response(
    harness: Harness, charged: list[int], version: int, count: int
) -> None:
    for topic in ("a", "another"):
        harness.create_topic(topic, count)
        harness.produce(topic, "x" * 3000, "y", partition=count - 1)
    asked = {(topic, index): 0 for topic in ("a", "another", "absent") for index in range(count)}
    asked[("t", 0)] = 99  # beyond its end
    answer = harness.request(fetch_of(harness, asked, isolation_level=1), version)
    assert sum(len(values_in(each)) for each in answers_in(harness, answer).values()) == 4
    assert charged == [4 + len(answer.encode(version))]


def test_topic_names_in_a_fetch_response_are_charged_to_the_consumer(harness: Harness, charged: list[int]) -> None:
    answer = harness.request(fetch_of(harness, {(f"absent{number}", 0): 0 for number in range(200)}), 12)
    assert charged == [4 + len(answer.encode(12))]


def test_a_consumer_with_a_session_is_charged_only_with_changed_partitions(
    harness: Harness, charged: list[int]
) -> None:
    begun = harness.request(fetch_of(harness, {("t", 0): 1, ("absent", 0): 0}, session_epoch=0), FETCH)
    for epoch in (1, 2):
        answer = harness.request(fetch_of(harness, {}, session_id=begun.session_id, session_epoch=epoch), FETCH)
        assert charged[epoch] == 4 + len(answer.encode(FETCH)) < charged[0]


def test_a_session_survives_a_throttled_response_and_sends_the_records_later(harness: Harness, client: Client) -> None:
    begun = ask(client, fetch_of(harness, {("t", 0): 0}, session_epoch=0), FETCH)
    harness.produce("t", "x" * 3000)
    set_quotas(harness, consumer_byte_rate=100)
    go_on: dict[str, Any] = {"session_id": begun.session_id, "session_epoch": 1}
    throttled = ask(client, fetch_of(harness, {("t", 0): 1}, **go_on), FETCH)
    assert (throttled.responses, throttled.session_id) == ([], begun.session_id)
    assert throttled.throttle_time_ms > 0
    harness.clock.advance(throttled.throttle_time_ms)
    client.outlet.run_soon()
    set_quotas(harness, consumer_byte_rate=0)
    go_on["session_epoch"] = 2
    answer = ask(client, fetch_of(harness, {}, **go_on), FETCH)
    assert values_in(answers_in(harness, answer)["t", 0]) == ["x" * 3000]


def test_client_ids_under_a_default_quota_are_throttled_separately(harness: Harness, client: Client) -> None:
    set_quotas(harness, (("user", None), ("client-id", None)), producer_byte_rate=100)
    assert ask(client, produce_of({("t", 0): batch("x" * 2000)}), PRODUCE).throttle_time_ms > 0
    other = harness.client()
    other.send_bytes(frame_of(MetadataRequest(topics=[]), METADATA, client_id="another"))
    assert other.outlet.items
    set_quotas(harness, (("client-id", "another"),), request_percentage=1e-9)
    second = harness.client()
    second.send_bytes(frame_of(MetadataRequest(topics=[]), METADATA, client_id="another"))
    first_size = len(second.sent_bytes())
    second.send_bytes(frame_of(MetadataRequest(topics=[]), METADATA, client_id="another"))
    assert len(second.sent_bytes()) == first_size


# --- time and partitions ----------------------------------------------------------------------------------------------


def test_a_client_over_its_request_quota_waits_at_most_one_window(harness: Harness, client: Client) -> None:
    set_quotas(harness, request_percentage=1e-6)
    assert ask(client, MetadataRequest(topics=[]), METADATA).throttle_time_ms == 1000
    assert 1000 <= muted_ms(harness, client) < 1010


def test_a_consumer_over_its_request_quota_gets_an_uncharged_empty_response(harness: Harness, client: Client) -> None:
    harness.produce("t", "x" * 3000)
    set_quotas(harness, request_percentage=1e-6, consumer_byte_rate=400)
    for _ in range(5):  # one answer more would be beyond the quota of bytes
        answer = ask(client, fetch_of(harness, {("t", 0): 1}), FETCH)
        assert (answer.responses, answer.throttle_time_ms) == ([], 1000)
        harness.clock.advance(1000)
        client.outlet.run_soon()
    set_quotas(harness, request_percentage=1000, consumer_byte_rate=400)
    answer = ask(client, fetch_of(harness, {("t", 0): 1}), FETCH)
    assert answer.throttle_time_ms == 0
    assert values_in(answers_in(harness, answer)["t", 0]) == ["x" * 3000]


def test_a_delayed_fetch_is_charged_once_for_its_time(harness: Harness, client: Client) -> None:
    set_quotas(harness, request_percentage=1e-6)
    client.send(fetch_of(harness, {("t", 0): 1}, max_wait_ms=500, min_bytes=1), FETCH)
    harness.clock.advance(500)
    (answer,) = (answer for _, answer in client.responses())
    assert (answer.responses, answer.throttle_time_ms) == ([], 1000)


def create(client: Client, *names: str, partitions: int = 1, version: int = 6) -> tuple[list[int], int]:
    """(errors, throttle time) of a CreateTopics."""
    topics = [Topic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    answer = ask(client, CreateTopicsRequest(topics=topics, timeout_ms=1000), version)
    return [topic.error_code for topic in answer.topics], answer.throttle_time_ms


def test_creations_beyond_the_mutation_quota_are_rejected_until_it_recovers(harness: Harness, client: Client) -> None:
    set_quotas(harness, controller_mutation_rate=1)  # 11 at once
    assert create(client, "a", "b", partitions=10) == ([0, 0], 0)
    errors, throttle_ms = create(client, "c", "d")
    assert (errors, throttle_ms) == ([EXCEEDED, EXCEEDED], 9000)
    assert "c" not in harness.cluster.image.topics
    assert 9000 <= muted_ms(harness, client) < 9010
    assert create(client, "c") == ([0], 0)


def test_an_old_client_over_the_mutation_quota_is_delayed_instead_of_rejected(harness: Harness, client: Client) -> None:
    set_quotas(harness, controller_mutation_rate=1)
    assert create(client, "a", partitions=20, version=5) == ([0], 9000)


def test_deleted_and_added_partitions_count_towards_the_mutation_quota(harness: Harness, client: Client) -> None:
    harness.create_topic("u", 6)
    set_quotas(harness, controller_mutation_rate=1)
    shape = CreatePartitionsRequest.CreatePartitionsTopic
    grow = CreatePartitionsRequest(topics=[shape(name="u", count=18, assignments=None)], timeout_ms=1000)
    assert ask(client, grow, 3).results[0].error_code == ErrorCode.NONE
    delete = DeleteTopicsRequest(topic_names=["u"], timeout_ms=1000)
    answer = ask(client, delete, 5)
    assert ([one.error_code for one in answer.responses], answer.throttle_time_ms) == ([EXCEEDED], 1000)
    harness.clock.advance(1000)
    client.outlet.run_soon()
    assert [one.error_code for one in ask(client, delete, 5).responses] == [ErrorCode.NONE]


def test_rejected_creations_are_not_charged(harness: Harness, client: Client) -> None:
    set_quotas(harness, controller_mutation_rate=1)
    for _ in range(3):
        assert create(client, "t", "a/b", partitions=100)[1] == 0
    assert create(client, "a") == ([0], 0)


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_the_quota_windows_of_many_clients_are_bounded(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_manager, "KEPT_MAX", 3)
    set_quotas(harness, producer_byte_rate=100, controller_mutation_rate=100)
    for number in range(10):
        data = frame_of(produce_of({("t", 0): batch("x")}), PRODUCE, client_id=f"c{number}")
        harness.client().send_bytes(data)
        topic = Topic(name=f"t{number}", num_partitions=1, replication_factor=1)
        data = frame_of(CreateTopicsRequest(topics=[topic]), 6, client_id=f"c{number}")
        harness.client().send_bytes(data)
    quotas = harness.cluster.quotas
    assert (len(quotas._rates), len(quotas._buckets)) == (3, 3)
    assert len(harness.cluster.image.topics) == 11
