"""Nodes, leaders and coordinators over HTTP, of a process with three nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.running import running_broker
from tests.testing.control.test_control import Control


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    settings = ("default.replication.factor=3",)
    with running_broker(tmp_path, *settings, nodes=3, options=("--control", "0")) as broker:
        yield Control(broker)


def test_nodes_are_stopped_and_leaders_and_coordinators_moved_over_http(control: Control) -> None:
    leader = "/v1/topics/t/partitions/0/leader"
    for value in ("a", "b"):
        control.post("/v1/topics/t/records", {"values": [value]})
    before = control.get(leader)["leader"]
    control.post(f"/v1/nodes/{before}/kill", status=204)
    after = control.get(leader)["leader"]
    assert after not in (None, before)
    settings = {"bootstrap.servers": control.bootstrap_servers, "log_level": 0}
    producer = Producer(settings)
    producer.produce("t", "c")
    assert producer.flush(20) == 0
    for verb in ("start", "pause", "resume", "make-stale", "refresh", "stop", "start"):
        control.post(f"/v1/nodes/{before}/{verb}", status=204)
    assert control.post(leader, {"node": before}) == {"leader": before}
    assert control.post(leader, {"node": None}) == {"leader": None}
    control.post("/v1/elect-leaders", status=204)
    assert control.get(leader)["leader"] is not None
    epoch = control.post("/v1/topics/t/partitions/0/begin-epoch")["leader_epoch"]
    assert control.post("/v1/topics/t/partitions/0/truncate", {"offset": 1})["leader_epoch"] > epoch
    assert [record["value"] for record in control.get("/v1/topics/t/records")] == ["a"]
    control.post("/v1/groups/g/move-coordinator", {"node": 2}, 204)
    control.post("/v1/transactions/x/move-coordinator", {"node": 3}, 204)
    assert control.get("/v1/groups/g/coordinator") == {"coordinator": 2}
    assert control.get("/v1/transactions/x/coordinator") == {"coordinator": 3}


def test_an_unknown_node_is_an_error(control: Control) -> None:
    status, answer = control.ask("POST", "/v1/nodes/9/kill")
    assert (status, answer["error"]) == (409, "BROKER_ID_NOT_REGISTERED")
    assert control.ask("POST", "/v1/nodes/1/paint")[0] == 422


def test_groups_are_rebalanced_and_transactions_are_held_and_fenced_over_http(control: Control) -> None:
    control.post("/v1/topics/t/records", {"values": ["a"]})
    settings = {"bootstrap.servers": control.bootstrap_servers, "log_level": 0}
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert consumer.consume(1, 20)[0].value() == b"a"
    (member,) = control.post("/v1/groups/g/wait", {"members": 1})["members"]
    control.post("/v1/groups/g/force-rebalance", status=204)
    assert control.post("/v1/groups/g/evict") == {"members": [member]}
    fault = control.post("/v1/groups/g/slow-joins", {"delay": 10})["fault"]
    assert control.get(f"/v1/faults/{fault}")["rule"]
    consumer.close()
    producer = Producer({**settings, "transactional.id": "x"})
    producer.init_transactions(20)
    control.post("/v1/transactions/x/hold", status=204)
    producer.begin_transaction()
    producer.produce("t", "b")
    producer.commit_transaction(20)
    assert control.get("/v1/transactions/x") == {"state": "PrepareCommit"}
    control.post("/v1/transactions/x/release", status=204)
    assert len(control.post("/v1/topics/t/expect", {"count": 2, "timeout": "20 s"})) == 2
    control.post("/v1/transactions/x/fence", status=204)
    assert control.ask("GET", "/v1/transactions/y")[0] == 409
