"""DescribeClientQuotas and AlterClientQuotas: what is kept and found, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.broker.harness import Harness, served_versions
from tests.cases import for_each

VERSIONS = served_versions(AlterClientQuotasRequest)
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST

Parts = tuple[tuple[str, str | None], ...]
Entry = AlterClientQuotasRequest.EntryData


def entry(parts: Parts, **values: float | None) -> Any:
    """A change of quotas; None removes one."""
    return Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(harness: Harness, *entries: Any, version: int | None = None, **fields: Any) -> list[tuple[int, str | None]]:
    answer = harness.request(AlterClientQuotasRequest(entries=list(entries), **fields), version)
    return [(one.error_code, one.error_message) for one in answer.entries]


def describe(
    harness: Harness, *components: tuple[str, int, str | None], strict: bool = False, version: int | None = None
) -> dict[Parts, dict[str, float]]:
    shape = DescribeClientQuotasRequest.ComponentData
    asked = [shape(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    answer = harness.request(DescribeClientQuotasRequest(components=asked, strict=strict), version)
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        tuple((part.entity_type, part.entity_name) for part in one.entity): {
            each.key: each.value for each in one.values
        }
        for one in answer.entries
    }


ANN: Parts = (("user", "ann"),)
ANN_APP: Parts = (("client-id", "app"), ("user", "ann"))
EVERYBODY: Parts = (("user", None),)
ADDRESS: Parts = (("ip", "10.0.0.1"),)


@pytest.fixture
def full(harness: Harness) -> Harness:
    done = alter(
        harness,
        entry(ANN, producer_byte_rate=1000.0, request_percentage=12.5),
        entry(ANN_APP, consumer_byte_rate=5.0),
        entry(EVERYBODY, controller_mutation_rate=0.5),
        entry(ADDRESS, connection_creation_rate=7.0),
    )
    assert done == [(ErrorCode.NONE, None)] * 4
    return harness


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("crash", [False, True])
def test_quotas_survive_a_restart(full: Harness, version: int, crash: bool) -> None:
    expected = {
        ANN: {"producer_byte_rate": 1000.0, "request_percentage": 12.5},
        ANN_APP: {"consumer_byte_rate": 5.0},
        EVERYBODY: {"controller_mutation_rate": 0.5},
        ADDRESS: {"connection_creation_rate": 7.0},
    }
    assert describe(full, version=version) == expected
    full.restart(crash=crash)
    assert describe(full, version=version) == expected


@for_each(
    ("components", "strict", "found"),
    [
        ([("user", EXACT, "ann")], False, {ANN, ANN_APP}),
        ([("user", EXACT, "ann")], True, {ANN}),
        ([("user", DEFAULT, None)], False, {EVERYBODY}),
        ([("user", SPECIFIED, None)], False, {ANN, ANN_APP, EVERYBODY}),
        ([("user", SPECIFIED, None)], True, {ANN, EVERYBODY}),
        ([("user", SPECIFIED, None), ("client-id", EXACT, "app")], True, {ANN_APP}),
        ([("client-id", DEFAULT, None)], False, set()),
        ([("ip", SPECIFIED, None)], True, {ADDRESS}),
        ([], True, set()),
    ],
)
def test_a_filter_finds_the_entities_that_match_all_its_components(
    full: Harness, components: list[tuple[str, int, str | None]], strict: bool, found: set[Parts]
) -> None:
    assert set(describe(full, *components, strict=strict)) == found


def test_quotas_are_changed_and_removed_and_unchanged_ones_write_no_record(full: Harness) -> None:
    log = full.cluster.metadata_log.storage
    end = log.log_end_offset
    assert alter(full, entry(ANN, producer_byte_rate=1000.0)) == [(ErrorCode.NONE, None)]
    assert alter(full, entry(ANN, consumer_byte_rate=None)) == [(ErrorCode.NONE, None)]
    assert log.log_end_offset == end
    alter(full, entry(ANN, producer_byte_rate=2.0, request_percentage=None))
    assert describe(full, ("user", EXACT, "ann"), strict=True) == {ANN: {"producer_byte_rate": 2.0}}
    alter(full, entry(ANN, producer_byte_rate=None))
    assert describe(full, ("user", EXACT, "ann"), strict=True) == {}
    full.restart()
    assert describe(full, ("user", EXACT, "ann"), strict=True) == {}


@for_each("value", [0.0, -1.0, float("nan"), 1e30, 1.5, float("inf")])
def test_an_invalid_quota_value_is_rejected(harness: Harness, value: float) -> None:
    ((code, _),) = alter(harness, entry(ANN, producer_byte_rate=value))
    assert (code, describe(harness)) == (INVALID, {})


def test_each_entry_of_an_alter_client_quotas_response_names_its_entity(harness: Harness) -> None:
    changes = entry((("user", "ann"), ("client-id", None))), entry((("ip", "::1"),))
    answer = harness.request(AlterClientQuotasRequest(entries=list(changes)))
    named = [[(part.entity_type, part.entity_name) for part in one.entity] for one in answer.entries]
    assert named == [[("client-id", None), ("user", "ann")], [("ip", "::1")]]


def test_a_rejected_quota_entity_does_not_affect_other_entities_of_the_request(harness: Harness) -> None:
    codes = [
        code for code, _ in alter(harness, entry((("ip", "nobody"),), nope=1.0), entry(ANN, producer_byte_rate=1.0))
    ]
    assert codes == [INVALID, ErrorCode.NONE]
    assert list(describe(harness)) == [ANN]


def test_a_duplicate_entity_or_key_changes_no_quota(harness: Harness) -> None:
    twice = entry(ANN, producer_byte_rate=1.0)
    ((code, message),) = alter(harness, twice, twice)
    assert (code, message) == (INVALID, "Ignoring duplicate entity user ann")
    twice.ops *= 2
    ((code, _),) = alter(harness, twice)
    assert (code, describe(harness)) == (INVALID, {})
