"""The control of a proxy over HTTP: faults and the journal, as those of a broker."""

from __future__ import annotations

from minibroker.testing.control.app import make_proxy_control_app
from tests.asking_applications import Asking
from tests.proxy.upstreams import answer, connected, exactly, request

HEARTBEAT = 12


def test_journal_and_faults_of_a_proxy_have_the_http_paths_of_the_broker() -> None:
    with connected() as (proxy, client, node):
        control = Asking(make_proxy_control_app(proxy))
        assert control.post("/v1/journal", {"on": True}).json["on"]
        added = control.post("/v1/faults", {"api": "Heartbeat", "delay": "1 ms", "times": 1})
        assert added.status == 201
        client.sendall(asked := request(HEARTBEAT, 0, 7, bytes(8)))
        assert exactly(node, len(asked)) == asked
        node.sendall(said := answer(7, b"\0\0"))
        assert exactly(client, len(said)) == said
        (seen,) = control.post("/v1/requests/wait", {"api": "Heartbeat", "timeout": "60 s"}).json
        assert (seen["api"], seen["client_id"], seen["faults"]) == ("Heartbeat", "c", [added.json[0]["rule"]])
        assert control.delete("/v1/requests").status == 204
        assert control.get("/v1/journal").json["kept"] == 0


def test_the_control_api_of_a_proxy_has_only_faults_journal_and_requests() -> None:
    with connected() as (proxy, _, _):
        control = Asking(make_proxy_control_app(proxy))
        paths = control.get("/openapi.json").json["paths"]
        assert all(path.startswith(("/v1/faults", "/v1/journal", "/v1/requests")) for path in paths)
        assert proxy.bootstrap_servers in control.get("/").text
        refused = control.post("/v1/faults", {"authentication": "refuse"})
        assert refused.status == 400 and "does not see who logs in" in refused.json["message"]
