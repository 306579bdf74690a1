"""Two-phase commit (KIP-939), as far as Apache Kafka has it: in a broker where it and unreleased versions are enabled.

Every literal is what Apache Kafka 4.4 answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.conftest import StartMinibroker
from conformance.kafka_reference import running_kafka
from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.cluster import ApiVersionsRequest
from minibroker.protocol.messages.groups import FindCoordinatorRequest
from minibroker.protocol.messages.transactions import DescribeTransactionsRequest, InitProducerIdRequest

SETTINGS = {"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}
NEVER_MS = (1 << 31) - 1
WAITS = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@pytest.fixture(scope="module")
def connection(
    against: str, start_minibroker: StartMinibroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Connection]:
    start = running_kafka if against == "kafka" else start_minibroker
    with start(tmp_path_factory.mktemp("broker"), SETTINGS) as broker, Connection(broker.bootstrap_servers) as opened:
        yield opened


def init(connection: Connection, transactional_id: str, **fields: Any) -> Any:
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    repeated(lambda: connection.ask(find, 4).coordinators[0], lambda found: found.error_code == ErrorCode.NONE)
    told = {"transaction_timeout_ms": 1000, "enable2_pc": True, **fields}
    request = InitProducerIdRequest(transactional_id=transactional_id, **told)
    return repeated(lambda: connection.ask(request, 6), lambda answer: answer.error_code not in WAITS)


def test_init_producer_id_version_6_is_announced(connection: Connection) -> None:
    answer = connection.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert [api.max_version for api in answer.api_keys if api.api_key == ApiKey.INIT_PRODUCER_ID] == [6]


@pytest.mark.parametrize("timeout_ms", [1000, NEVER_MS, 0, -1])
def test_a_two_phase_commit_producer_has_no_transaction_timeout(connection: Connection, timeout_ms: int) -> None:
    name = f"two-phases-{timeout_ms}"
    answer = init(connection, name, transaction_timeout_ms=timeout_ms)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == (-1, -1)
    (state,) = connection.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states
    assert (state.transaction_state, state.transaction_timeout_ms) == ("Empty", NEVER_MS)


@pytest.mark.parametrize("two_phases", [False, True])
def test_keep_prepared_txn_is_rejected(connection: Connection, two_phases: bool) -> None:
    answer = init(connection, "kept", enable2_pc=two_phases, keep_prepared_txn=True)
    assert (answer.error_code, answer.producer_id) == (ErrorCode.UNSUPPORTED_VERSION, -1)


def test_transaction_timeouts_are_bounded_without_two_phase_commit(connection: Connection) -> None:
    answer = init(connection, "bounded", enable2_pc=False, transaction_timeout_ms=NEVER_MS)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
