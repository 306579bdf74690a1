"""InitProducerId: ids that are never given out twice, nodes, and two-phase commit.

What becomes of a transaction is tested with `broker.transactions`, how sequences are checked with Produce.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.coordination.coordinators import find_coordinator_or_create_topic
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest
from tests.broker.harness import Harness, served_versions

VERSIONS = served_versions(InitProducerIdRequest)


def init(harness: Harness, version: int = VERSIONS[-1], *, node: int = 1, **fields: Any) -> tuple[int, int, int]:
    """(error, producer id, epoch)."""
    response = harness.request(InitProducerIdRequest(transactional_id=None, **fields), version, node=node)
    return response.error_code, response.producer_id, response.producer_epoch


def init_transactional(harness: Harness, transactional_id: str, timeout_ms: int, version: int, **more: Any) -> Any:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    return harness.request(request, version, **more)


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


def test_only_the_coordinator_of_a_transactional_id_initializes_it(tmp_path: Path) -> None:
    with Harness(tmp_path, nodes=2) as harness:
        coordinator = find_coordinator_or_create_topic(harness.cluster.transactions, "tx").node_id
        codes = {node: init_transactional(harness, "tx", 1000, 5, node=node).error_code for node in (1, 2)}
        assert codes == {coordinator: ErrorCode.NONE, 3 - coordinator: ErrorCode.NOT_COORDINATOR}


# --- two-phase commit -----------------------------------------------------------------------------


TWO_PHASES = {"transaction.two.phase.commit.enable": "true"}
NEVER_MS = (1 << 31) - 1
DAY_MS = 86_400_000


def init_two_phases(harness: Harness, **more: Any) -> Any:
    harness.cluster.transactions.log.create_topic()
    request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000, enable2_pc=True, **more)
    return harness.request(request, 6)


def states(harness: Harness) -> list[tuple[str, int]]:
    described = harness.request(DescribeTransactionsRequest(transactional_ids=["tx"])).transaction_states
    return [(state.transaction_state, state.transaction_timeout_ms) for state in described]


def test_two_phase_commit_is_rejected_unless_it_is_enabled(harness: Harness) -> None:
    assert init_two_phases(harness).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.mark.parametrize("crash", [False, True])
def test_a_two_phase_transaction_never_times_out_and_survives_a_restart(tmp_path: Path, crash: bool) -> None:
    with Harness(tmp_path, settings=TWO_PHASES) as harness:
        harness.create_topic("t")
        answer = init_two_phases(harness)
        assert (answer.error_code, answer.ongoing_txn_producer_id) == (ErrorCode.NONE, -1)
        transactions = harness.cluster.transactions
        transactions.add_partitions("tx", (answer.producer_id, answer.producer_epoch), [("t", 0)], 2)
        harness.clock.advance(8 * DAY_MS)
        assert states(harness) == [("Ongoing", NEVER_MS)]
        harness.restart(crash=crash)
        harness.clock.advance(8 * DAY_MS)
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
