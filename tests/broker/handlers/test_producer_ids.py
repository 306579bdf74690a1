"""InitProducerId: ids that are never given out twice, and what is checked of transactional ids.

What becomes of a transaction is tested with `broker.transactions`, how sequences are checked with Produce.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordination.coordinators import coordinator_of
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from tests.broker.harness import Harness, batch, served_versions
from tests.cases import for_each

VERSIONS = served_versions(InitProducerIdRequest)
WITH_PRODUCER = 3


def init(harness: Harness, version: int = VERSIONS[-1], *, node: int = 1, **fields: Any) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    response = harness.request(InitProducerIdRequest(transactional_id=None, **fields), version, node=node)
    return response.error_code, response.producer_id, response.producer_epoch


def init_transactional(harness: Harness, transactional_id: str, timeout_ms: int, version: int, **more: Any) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    return harness.request(request, version, **more)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_init_producer_id_gets_its_own_producer_id(harness: Harness, version: int) -> None:
    assert [init(harness, version) for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]


def test_a_producer_id_is_never_assigned_twice_by_any_node_or_restart(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        ids = [init(harness, node=node)[1] for node in (1, 2, 1)]
        harness.restart()
        ids.append(init(harness)[1])
        harness.restart(crash=True)
        ids.append(init(harness)[1])
        assert len(set(ids)) == len(ids)


def test_producer_ids_continue_beyond_a_recorded_block(harness: Harness) -> None:
    assert [init(harness)[1] for _ in range(1002)] == list(range(1002))


@pytest.mark.parametrize("timeout_ms", [0, -1, 2_000_000_000])
def test_the_transaction_timeout_is_ignored_without_a_transactional_id(harness: Harness, timeout_ms: int) -> None:
    assert init(harness, transaction_timeout_ms=timeout_ms)[0] == ErrorCode.NONE


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= WITH_PRODUCER])
def test_an_idempotent_producer_that_sends_its_id_gets_another(harness: Harness, version: int) -> None:
    _, producer_id, _ = init(harness)
    assert init(harness, version, producer_id=producer_id, producer_epoch=0) == (0, producer_id + 1, 0)


@for_each("version", [version for version in VERSIONS if version >= WITH_PRODUCER])
@for_each(("producer_id", "epoch"), [(5, -1), (-1, 0)])
def test_a_producer_id_without_an_epoch_or_the_reverse_is_rejected(
    harness: Harness, version: int, producer_id: int, epoch: int
) -> None:
    refused = ErrorCode.INVALID_REQUEST, -1, -1
    assert init(harness, version, producer_id=producer_id, producer_epoch=epoch) == refused


@for_each("version", VERSIONS)
@for_each(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 60_000, ErrorCode.INVALID_REQUEST),
        ("tx", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("tx", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_an_invalid_transactional_id_or_timeout_is_rejected(
    harness: Harness, version: int, transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    coordinator_of(harness.cluster.transactions, "tx")
    next_id = init(harness)[1] + 1
    response = init_transactional(harness, transactional_id, timeout_ms, version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)
    assert init(harness)[1] == next_id


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_takes_over_a_transactional_id_gets_the_next_epoch(harness: Harness, version: int) -> None:
    coordinator_of(harness.cluster.transactions, "tx")
    answers = [init_transactional(harness, "tx", timeout_ms, version) for timeout_ms in (1, 900_000)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [(0, 0, 0), (0, 0, 1)]


def test_only_the_coordinator_of_a_transactional_id_initializes_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        coordinator = coordinator_of(harness.cluster.transactions, "tx").node_id
        codes = {node: init_transactional(harness, "tx", 1000, 5, node=node).error_code for node in (1, 2)}
        assert codes == {coordinator: ErrorCode.NONE, 3 - coordinator: ErrorCode.NOT_COORDINATOR}


# --- what an id is for --------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 10))
def test_an_idempotent_producer_is_protected_from_duplicates_and_gaps(harness: Harness, version: int) -> None:
    harness.create_topic("t")
    _, producer_id, epoch = init(harness)

    def send(sequence: int, count: int) -> tuple[int, int]:
        records = batch(*["v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        answer = harness.produce_batch("t", records, version=version)
        return answer.error_code, answer.base_offset

    gap = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert [send(0, 3), send(3, 1), send(0, 3), send(5, 1), send(4, 1)] == [(0, 0), (0, 3), (0, 0), gap, (0, 4)]
    assert harness.partition("t").log.log_end_offset == 5


# --- two-phase commit -----------------------------------------------------------------------------


TWO_PHASES = {"transaction.two.phase.commit.enable": "true"}
NEVER_MS = (1 << 31) - 1
DAY_MS = 86_400_000


def init_two_phases(harness: Harness, **more: Any) -> Any:
    harness.cluster.transactions.log.create()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000, enable2_pc=True, **more)
    return harness.request(request, 6)


def states(harness: Harness) -> list[tuple[str, int]]:
    described = harness.request(DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
    return [(state.transaction_state, state.transaction_timeout_ms) for state in described]


def test_two_phase_commit_is_rejected_unless_it_is_enabled(harness: Harness) -> None:
    assert init_two_phases(harness).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_prepared_transactions_are_not_kept(tmp_path: Path) -> None:
    with Harness(tmp_path, settings=TWO_PHASES) as harness:
        answer = init_two_phases(harness, keep_prepared_txn=True)
        assert (answer.error_code, answer.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("crash", [False, True])
def test_a_two_phase_transaction_never_times_out_and_survives_a_restart(tmp_path: Path, crash: bool) -> None:
    with Harness(tmp_path, settings=TWO_PHASES) as harness:
        harness.create_topic("t")
        answer = init_two_phases(harness)
        assert (answer.error_code, answer.ongoing_txn_producer_id) == (ErrorCode.NONE, -1)
        transactions = harness.cluster.transactions
        transactions.add_partitions("tx", (answer.producer_id, answer.producer_epoch), [("t", 0)], 2)
        harness.clock.advance(30 * DAY_MS)
        assert states(harness) == [("Ongoing", NEVER_MS)]
        harness.restart(crash=crash)
        harness.clock.advance(30 * DAY_MS)
        assert states(harness) == [("Ongoing", NEVER_MS)]
        assert init_two_phases(harness).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        harness.end_turn()
        assert states(harness) == [("CompleteAbort", NEVER_MS)]
        again = init_two_phases(harness)
        assert (again.error_code, again.producer_epoch > answer.producer_epoch) == (ErrorCode.NONE, True)


@pytest.mark.parametrize("enabled", ["false", "true"])
def test_init_producer_id_version_6_requires_unstable_api_versions(tmp_path: Path, enabled: str) -> None:
    with Harness(tmp_path, settings={"unstable.api.versions.enable": enabled}) as harness:
        answer = harness.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        (newest,) = [api.max_version for api in answer.api_keys if api.api_key == ApiKey.INIT_PRODUCER_ID]
        assert newest == (6 if enabled == "true" else 5)
