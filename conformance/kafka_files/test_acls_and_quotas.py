"""ACLs and quotas that minibroker has recorded hold in Apache Kafka 4.4 on the same directory, and vice versa."""

from __future__ import annotations

from pathlib import Path

from conformance.kafka_files.conftest import KAFKA_PROPERTIES, OUR_SETTINGS
from conformance.kafka_reference import running_kafka
from conformance.wire.connection import Connection
from conformance.wire.requests import repeated
from conformance.wire.test_rights import MADE, create, creation, delete, described
from conformance.wire.test_security import EXACT, alter_quotas, quotas
from minibroker.broker.security.acls import PatternType, Permission
from minibroker.broker.security.operations import Operation, ResourceType
from tests.running import running_broker

RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def change_quotas(connection: Connection, **values: float | None) -> None:
    """Set quotas of alice; None removes one."""
    assert alter_quotas(connection, 1, [("user", "alice")], values) == (0, None)


def quotas_of_alice(connection: Connection) -> dict[str, float]:
    found: dict[str, float] = quotas(connection, 1, ("user", EXACT, "alice"))[("user", "alice"),]
    return found


def test_acls_and_quotas_survive_a_switch_to_kafka_and_back(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    ours = (*OUR_SETTINGS, f"log.dirs={logs}", *(f"{name}={value}" for name, value in RIGHTS.items()))
    wanted = [
        creation("t", principal="User:alice", host="*"),
        creation("t-", principal="User:CN=a,O=b", resource_pattern_type=PatternType.PREFIXED),
        creation("g", principal="User:*", resource_type=ResourceType.GROUP, permission_type=Permission.DENY),
        creation("gone", principal="User:alice", operation=Operation.ALL),
    ]
    (tmp_path / "first").mkdir()
    with running_broker(tmp_path / "first", *ours) as broker, Connection(broker.bootstrap_servers) as connection:
        assert create(connection, *wanted) == [MADE] * 4
        assert delete(connection, {"resource_name_filter": "gone"}) == (0, ["gone"])
        told = described(connection)
        assert len(told) == 3
        change_quotas(connection, producer_byte_rate=1e6, consumer_byte_rate=2e6)
    with running_kafka(tmp_path / "kafka", {**KAFKA_PROPERTIES, **RIGHTS}, logs=logs) as kafka:
        with Connection(kafka.bootstrap_servers) as connection:
            assert repeated(lambda: described(connection), lambda seen: seen == told) == told
            assert create(connection, creation("theirs"), wanted[0]) == [MADE] * 2
            assert delete(connection, {"resource_name_filter": "g"}) == (0, ["g"])
            assert len(repeated(lambda: described(connection), lambda seen: len(seen) == 3)) == 3
            told = described(connection)
            assert quotas_of_alice(connection) == {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}
            change_quotas(connection, producer_byte_rate=None, request_percentage=12.5)
            changed = {"consumer_byte_rate": 2e6, "request_percentage": 12.5}
            assert repeated(lambda: quotas_of_alice(connection), lambda seen: seen == changed) == changed
        kafka.stop()
    (tmp_path / "second").mkdir()
    with running_broker(tmp_path / "second", *ours) as broker, Connection(broker.bootstrap_servers) as connection:
        assert described(connection) == told
        assert quotas_of_alice(connection) == changed
        assert {acl[1] for acl in told} == {"t", "t-", "theirs"}
        assert delete(connection, {"resource_name_filter": "theirs"}) == (0, ["theirs"])
