"""The test kit over HTTP, as a process serves it to tests in other languages: every path, and what is refused."""

from __future__ import annotations

import contextlib
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer

from minibroker.testing.embedded.registry_verbs import RegistryVerbs
from minibroker.testing.faults.rules import WORDS
from minibroker.testing.verbs.group_verbs import GroupVerbs
from minibroker.testing.verbs.node_verbs import NodeVerbs
from minibroker.testing.verbs.record_verbs import RecordVerbs
from minibroker.testing.verbs.security_verbs import AclVerbs, QuotaVerbs, Users
from minibroker.testing.verbs.share_verbs import ShareGroupVerbs
from minibroker.testing.verbs.wait_verbs import WaitVerbs
from tests.clients.share_consumers import share_consumer
from tests.clients.streams_members import streams_member
from tests.running import RunningBroker, environment_for_broker, running_broker, serve_command
from tests.testing.support import until

ANNOUNCED = "minibroker is controlled at "
PARTS = (NodeVerbs, GroupVerbs, ShareGroupVerbs, RecordVerbs, WaitVerbs, Users, AclVerbs, QuotaVerbs)


class Control:
    """A client of the control."""

    def __init__(self, broker: RunningBroker, token: str | None = None) -> None:
        assert broker.process.stdout is not None
        line = broker.process.stdout.readline().decode().rstrip("\n")
        assert line.startswith(ANNOUNCED)
        self.url = line.removeprefix(ANNOUNCED)
        self.token = token
        self.bootstrap_servers = broker.bootstrap_servers

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {self.token}"} if self.token else {}
        )
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def get(self, path: str) -> Any:
        status, answer = self.ask("GET", path)
        assert status == 200, answer
        return answer

    def post(self, path: str, body: object = None, status: int = 200) -> Any:
        got, answer = self.ask("POST", path, body)
        assert got == status, answer
        return answer


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    with running_broker(tmp_path_factory.mktemp("control"), options=("--control", "0")) as broker:
        yield Control(broker)


@pytest.fixture
def control(process: Control) -> Control:
    process.post("/v1/reset", status=204)
    return process


def produce(control: Control, *values: str) -> list[object]:
    producer = Producer({"bootstrap.servers": control.bootstrap_servers, "log_level": 0, "retry.backoff.ms": 20})
    reported: list[object] = []
    for value in values:
        producer.produce("t", value, on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(20) == 0
    return reported


def test_the_control_state_has_addresses_and_topics(control: Control) -> None:
    produce(control, "a")
    state = control.get("/v1/broker")
    assert state["bootstrap_servers"] == control.bootstrap_servers and state["running"] is True
    assert state["topics"] == {"t": [1]} and state["groups"] == {}


def test_records_are_produced_and_consumed_over_http(control: Control) -> None:
    control.post("/v1/topics", {"name": "t", "partitions": 2, "config": {"retention.ms": 1000}}, 201)
    body = {"values": ["x", None], "key": "k", "partition": 1, "headers": {"h": "v"}, "timestamp_ms": 5}
    assert control.post("/v1/topics/t/records", body) == {"offset": 0}
    first, second = control.get("/v1/topics/t/records?partition=1")
    assert (first["key"], first["value"], first["value_hex"], first["headers"]) == ("k", "x", "78", [["h", "v"]])
    assert (second["value"], first["timestamp_ms"], first["partition"]) == (None, 5, 1)
    produce(control, "from a client")
    assert len(control.post("/v1/topics/t/expect", {"count": 3, "timeout": "20 s"})) == 3
    control.post("/v1/fill", {"u": ["a", {"key": "k", "value": {"id": 1}}]}, 204)
    assert [record["value"] for record in control.post("/v1/topics/u/expect", {"count": 2})] == ["a", '{"id": 1}']


def test_expecting_a_record_over_http_fails_if_it_is_missing(control: Control) -> None:
    status, answer = control.ask("POST", "/v1/topics/t/expect", {"timeout": "20 ms"})
    assert (status, answer["error"]) == (408, "EXPIRED") and "there is no such topic" in answer["message"]
    control.post("/v1/topics/t/expect-nothing", {"during": "20 ms"}, 204)
    assert control.ask("POST", "/v1/groups/g/wait", {"members": 1, "timeout": 10})[0] == 408
    assert control.ask("POST", "/v1/topics/t/wait-for-high-watermark", {"offset": 9, "timeout": 10})[0] == 408


def test_faults_are_added_awaited_and_removed_over_http(control: Control) -> None:
    (fault,) = control.post(
        "/v1/faults", {"api": "Produce", "topic": "t", "error": "NOT_LEADER_OR_FOLLOWER", "times": 2}, 201
    )
    assert produce(control, "a") == [None]
    number = fault["number"]
    assert control.post(f"/v1/faults/{number}/wait", {"hits": 2})["hits"] == 2
    assert control.get(f"/v1/faults/{number}")["matches"] == 3
    assert control.ask("DELETE", f"/v1/faults/{number}")[0] == 204
    assert control.ask("GET", f"/v1/faults/{number}")[0] == 404
    assert len(control.post("/v1/faults", [{"close": "before", "api": "Fetch"}, {"delay": 1}], 201)) == 2
    assert control.ask("DELETE", "/v1/faults")[0] == 204
    assert control.get("/v1/faults") == []


def test_the_clock_is_advanced_over_http(control: Control) -> None:
    before = control.get("/v1/clock")["now_ms"]
    assert control.post("/v1/clock/freeze")["frozen"] is True
    now = control.post("/v1/clock/advance", {"by": "7 days"})["now_ms"]
    assert now >= before + 604_800_000
    assert control.post("/v1/clock/unfreeze")["frozen"] is False


def test_recorded_requests_are_listed_over_http(control: Control) -> None:
    produce(control, "a")
    seen = control.post("/v1/requests/wait", {"api": "Produce", "count": 1})
    assert seen[0]["outcome"] == "answered" and seen[0]["raw"] is None
    (raw,) = control.get("/v1/requests?api=Produce&raw=true")
    assert b"a" in bytes.fromhex(raw["raw"]["request_hex"])
    assert control.ask("DELETE", "/v1/requests")[0] == 204
    assert control.get("/v1/requests?api=Produce") == []
    assert control.post("/v1/journal", {"on": False})["on"] is False
    assert control.post("/v1/journal", {"on": True})["on"] is True


def test_client_metrics_are_requested_and_listed_over_http(control: Control) -> None:
    control.post("/v1/client-metrics", {"interval": "100 ms"}, 204)
    producer = Producer({"bootstrap.servers": control.bootstrap_servers, "client.id": "shop", "log_level": 0})
    producer.produce("t", "v")
    assert producer.flush(20) == 0
    control.post("/v1/requests/wait", {"api": "PushTelemetry", "count": 1, "timeout": "20 s"})
    assert any(metric["name"].startswith("org.apache.") for metric in control.get("/v1/client-metrics?client_id=shop"))
    assert control.get("/v1/client-metrics?client_id=other") == []


def test_a_group_can_be_awaited_over_http(control: Control) -> None:
    produce(control, "a")
    settings = {"bootstrap.servers": control.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe(["t"])
    assert consumer.consume(1, 20)[0].value() == b"a"
    assert len(control.post("/v1/groups/g/wait", {"members": 1})["members"]) == 1
    consumer.commit(asynchronous=False)
    assert control.post("/v1/groups/g/wait-for-commit", {"topic": "t", "offset": 1}) == {"offset": 1}
    control.post("/v1/groups/g/wait-until-caught-up", {"topic": "t"}, 204)
    assert control.get("/v1/groups/g/committed")["committed"].keys() == {"t"}
    assert set(control.get("/v1/groups/g/lag/t")["lag"].values()) == {0}
    assert control.ask("GET", "/v1/groups/none/lag/t")[0] == 409
    assert control.post("/v1/topics/t/wait-for-high-watermark", {"offset": 1}) == {"offset": 1}
    consumer.close()


def test_share_groups_are_observed_and_their_locks_expired(control: Control) -> None:
    path = "/v1/share-groups/g"
    control.post(f"{path}/configure", {"share.auto.offset.reset": "earliest"}, 204)
    produce(control, "a", "b")
    settings = {"bootstrap.servers": control.bootstrap_servers, "group.id": "g", "log_level": 0}
    with share_consumer({**settings, "share.acknowledgement.mode": "explicit"}, "t") as consumer:
        until(lambda: list(consumer.poll(0.2)))
        (member,) = control.post(f"{path}/wait-until-assigned", {"topic": "t", "members": 1})["members"]
        where = {"topic": "t", "partition": 0, "first": 0, "last": 1, "deliveries": 1}
        assert control.get(f"{path}/deliveries?topic=t") == [{**where, "state": "acquired", "member": member}]
        assert control.post(f"{path}/expire-locks") == {"records": 2}
        assert control.get(f"{path}/deliveries") == [{**where, "state": "available", "member": None}]
    found = control.post(f"{path}/expect-redelivered", {"topic": "t", "count": 2, "deliveries": 1})
    assert [(each["value"], each["deliveries"], each["state"]) for each in found] == [
        ("a", 1, "available"),
        ("b", 1, "available"),
    ]
    assert control.post(f"{path}/collect-dead-letters") == {"topic": "dlq.g"}
    assert control.get(f"{path}/dead-letters") == control.post(f"{path}/expect-dead-letters", {"count": 0}) == []
    assert control.ask("POST", f"{path}/expect-dead-letters", {"timeout": 10})[0] == 408
    assert control.post(f"{path}/wait-until-settled", {"topic": "t", "offset": 0}) == {"offset": 0}
    assert control.get("/v1/broker")["groups"]["g"]["type"] == "share"
    for wait, body in (("wait-until-settled", {"offset": 1}), ("expect-redelivered", {}), ("wait-until-assigned", {})):
        assert control.ask("POST", f"{path}/{wait}", {"topic": "t", "timeout": 10, **body})[0] == 408
    assert control.ask("POST", "/v1/share-groups/no/expire-locks")[1]["error"] == "GROUP_ID_NOT_FOUND"


def test_a_streams_group_is_described_over_http(control: Control) -> None:
    produce(control, "a")
    with streams_member(control.bootstrap_servers, "app", "t") as member:
        found = control.get("/v1/streams-groups/app")
    assert (found["state"], found["source_topics"]) == ("Stable", ["t"])
    assert [(each["member"], each["active"]) for each in found["members"]] == [(member.member_id, {"0": [0]})]


def test_a_snapshot_is_restored_over_http(control: Control) -> None:
    produce(control, "a")
    number = control.post("/v1/snapshots")["snapshot"]
    produce(control, "b")
    control.post(f"/v1/snapshots/{number}/restore", status=204)
    assert [record["value"] for record in control.get("/v1/topics/t/records")] == ["a"]
    control.post("/v1/kill", status=204)
    assert control.get("/v1/broker")["running"] is False
    status, answer = control.ask("GET", "/v1/topics/t/records")
    assert (status, answer["error"]) == (409, "NOT_RUNNING")
    control.post("/v1/restart", status=204)
    assert [record["value"] for record in control.get("/v1/topics/t/records")] == ["a"]


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/faults", {"close": "now"}, 400, "close is one of"),
        ("/v1/clock/advance", {"by": "soon"}, 400, "'soon' is no duration"),
        ("/v1/clock/advance", {"by": -1}, 400, "is no duration"),
        ("/v1/topics", {"name": "a b"}, 409, "INVALID_TOPIC_EXCEPTION"),
        ("/v1/topics", {"name": "t", "partition": 1}, 422, "partition"),
        ("/v1/fill", {"t": 5}, 400, "a list of records or a mapping is expected"),
        ("/v1/snapshots/77/restore", None, 404, "there is no snapshot 77"),
        ("/v1/topics/t/records", {"values": ["a"], "partition": 70}, 409, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/v1/topics/t/records", {"values": []}, 400, "give either values or values_hex"),
        ("/v1/topics/t/records", {"values": ["a"], "key": "a", "key_hex": "61"}, 400, "either key or key_hex"),
        ("/v1/topics/t/records", {"values_hex": ["6"]}, 400, "hex"),
        ("/v1/topics/t/records", {"values": ["a"], "timestamp_ms": 1 << 63}, 422, "body.timestamp_ms"),
        ("/v1/clock/advance", {"by": 1e300}, 400, "is no duration"),
        ("/v1/clock/advance", {"by": True}, 422, "not True"),
        ("/v1/clock/advance", None, 422, "body: Field required"),
        ("/v1/nodes/1/explode", None, 422, "path.verb: must be 'stop', 'kill'"),
        ("/v1/groups/g/move-coordinator", {"node": False}, 422, "body.node"),
        ("/v1/groups/g/wait", {"state": "stable"}, 400, "'stable' is not a state of groups"),
        ("/v1/requests/wait", {"api": "Prodcue"}, 400, "'Prodcue' is not an API"),
        ("/v1/faults", 7, 422, "body"),
        ("/v1/nowhere", None, 404, "Not Found"),
        ("/v1/broker", None, 405, "Method Not Allowed"),
    ],
)
def test_invalid_control_requests_are_rejected_with_the_reason(
    control: Control, path: str, body: object, status: int, said: str
) -> None:
    got, answer = control.ask("POST", path, body)
    assert got == status and set(answer) == {"error", "message"}
    assert said in f"{answer['error']}: {answer['message']}" and "\n" not in answer["message"]


@pytest.mark.parametrize("path", ["/v1/requests?aip=Fetch", "/v1/topics/t/records?part=1"])
def test_an_unknown_query_parameter_is_rejected(control: Control, path: str) -> None:
    status, answer = control.ask("GET", path)
    assert status == 422 and answer["message"].startswith("query.")


def test_a_control_request_with_invalid_json_is_rejected(control: Control) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{control.url}/v1/clock/advance", b"{by", headers, method="POST")
    with pytest.raises(HTTPError) as raised:
        urllib.request.urlopen(request, timeout=30)
    with raised.value as answer:
        assert answer.code == 422 and "JSON" in json.loads(answer.read())["message"]


def test_records_with_binary_values_are_produced(control: Control) -> None:
    control.post("/v1/topics/t/records", {"values_hex": ["ff00", None], "key_hex": "fe"})
    found = control.get("/v1/topics/t/records")
    assert [(record["key_hex"], record["value_hex"]) for record in found] == [("fe", "ff00"), ("fe", None)]


def test_the_number_of_journal_entries_is_returned_over_http(control: Control) -> None:
    control.post("/v1/journal", {"on": True})
    assert produce(control, "a") == [None]
    told = control.get("/v1/journal")
    assert told["on"] is True and told["kept"] == len(control.get("/v1/requests")) > 0 and told["dropped"] == 0


def test_the_control_api_returns_its_openapi_document(control: Control) -> None:
    described = control.get("/openapi.json")
    assert described["openapi"].startswith("3.") and described["info"]["title"] == "minibroker control"
    silent = [
        (path, method)
        for path, methods in described["paths"].items()
        for method, told in methods.items()
        if not told.get("description")
    ]
    assert silent == [] and len(described["paths"]) >= 20


def test_the_openapi_document_has_every_response_and_parameter(control: Control) -> None:
    described = control.get("/openapi.json")
    answers = {
        (path, method): set(told["responses"])
        for path, methods in described["paths"].items()
        for method, told in methods.items()
    }
    assert all({"400", "409", "422"} < each for each in answers.values())
    assert {path for (path, _), each in answers.items() if "408" in each} == {
        path for path in described["paths"] if "/wait" in path or "/expect" in path
    }
    assert {path for (path, _), each in answers.items() if "404" in each} == {
        path for path in described["paths"] if re.search("{(number|user|token)}|registry/schemas", path)
    }
    refused = described["paths"]["/v1/reset"]["post"]["responses"]["409"]["content"]["application/json"]["schema"]
    assert refused == {"$ref": "#/components/schemas/ErrorAnswer"}
    fault = described["components"]["schemas"]["NewFault"]
    assert set(fault["properties"]) == set(WORDS) - {"where"}
    nth, delay = fault["properties"]["nth"], fault["properties"]["delay"]
    assert nth == {"type": "integer", "minimum": 1, "description": WORDS["nth"][1].meaning}
    assert delay["type"] == "string"
    assert fault["properties"]["close"]["enum"] == ["before", "after"]


def test_clients_can_be_generated_from_the_openapi_document(control: Control) -> None:
    described = control.get("/openapi.json")
    told = [each for methods in described["paths"].values() for each in methods.values()]
    ids = [each["operationId"] for each in told]
    assert len(set(ids)) == len(ids) and {"reset_broker", "add_faults", "wait_for_group"} < set(ids)
    assert [each for each in ids if not re.fullmatch("[a-z]+(_[a-z]+)*", each)] == []
    assert described["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert described["security"] == [{}, {"token": []}] and described["servers"] == [{"url": "/"}]
    free = {"fill_topics", "configure_share_group", "get_client_config", "get_client_config_with_token"}
    for each in (each for each in told if each["operationId"] not in free):
        answers = [answer for status, answer in each["responses"].items() if status.startswith("2")]
        for content in [*answers, each.get("requestBody", {})]:
            schema = content.get("content", {}).get("application/json", {}).get("schema", {"$ref": "nothing"})
            assert "$ref" in str(schema), f"{each['operationId']} has a body without a name: {schema}"
    # Generated clients have a class of this name.
    assert not {"Client", "AuthenticatedClient", "Response"} & set(described["components"]["schemas"])


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "html"), ("/docs", "html"), ("/docs.js", "javascript"), ("/style.css", "css")]
)
def test_the_control_pages_need_no_external_resources(control: Control, path: str, kind: str) -> None:
    with urllib.request.urlopen(control.url + path, timeout=30) as answer:
        text, headers = answer.read().decode(), answer.headers
    assert headers["content-type"] == f"text/{kind}; charset=utf-8"
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self';") and "unsafe" not in policy
    assert not re.search(r"(src|href)=\"?(https?:)?//|<script>|style=|\son\w+=|@import|url\(", text)
    for name in re.findall(r'(?:src|href)="([^"]+)"', text):
        assert urllib.request.urlopen(f"{control.url}/{name.removeprefix('./')}", timeout=30).status == 200


@pytest.mark.parametrize(("origin", "status"), [("http://evil.test", 403), ("null", 403), ("", 200), (None, 200)])
def test_pages_of_other_sites_cannot_control_the_broker(control: Control, origin: str | None, status: int) -> None:
    headers = {} if origin is None else {"origin": origin or control.url}
    request = urllib.request.Request(f"{control.url}/v1/clock/unfreeze", b"", headers, method="POST")
    with pytest.raises(HTTPError) if status != 200 else contextlib.nullcontext() as raised:
        urllib.request.urlopen(request, timeout=30).close()
    if raised is not None:
        with raised.value as answer:
            assert answer.code == status and "and not one of this server" in json.loads(answer.read())["message"]


def test_the_landing_page_shows_where_clients_connect(control: Control) -> None:
    with urllib.request.urlopen(control.url, timeout=30) as answer:
        text = answer.read().decode()
    assert f"<code>{control.bootstrap_servers}</code>" in text and control.url.removeprefix("http://") in text


def test_every_method_of_the_test_kit_has_an_http_path() -> None:
    """The document's table of paths names them; that it has the paths that there are is checked with the document."""
    table = Path("docs/testing-http.md").read_text().split("| path | methods |")[1]
    named = {word.split(".")[-1] for word in re.findall(r"`([a-z_.]+)`", table)} | {"stop_node", "start_node"}
    named |= {f"{verb}_node" for verb in re.findall(r"`([a-z]+)`", table)} | {"make_stale", "refresh"}
    verbs = {
        name
        for kind in (*PARTS, RegistryVerbs)
        for name, value in vars(kind).items()
        if callable(value) and not name.startswith(("_", "await_"))
    }
    twins = {name for name in verbs if name[0] == "a" and name[1:] in verbs}
    hidden = {"answer_instead", "record_answer", "abort", "close", "decode_records", "get_or_make_running_registry"}
    hidden |= {"read_schema_source", "read_state"}
    of_python = hidden | {"nothing_registered"}  # which is for a `with`
    assert verbs - twins - named - of_python == set()


@pytest.mark.parametrize(
    ("options", "env"),
    [(("--control-token", "secret"), {}), ((), {"MINIBROKER_CONTROL_TOKEN": "secret"})],
)
def test_the_control_api_requires_its_token(tmp_path: Path, options: tuple[str, ...], env: dict[str, str]) -> None:
    with running_broker(tmp_path, options=("--control", "127.0.0.1:0", *options), env=env) as broker:
        control = Control(broker)
        for token in (None, "other"):
            control.token = token
            status, answer = control.ask("GET", "/v1/broker")
            assert (status, answer["error"]) == (401, "UNAUTHORIZED")
        assert control.get("/openapi.json")["security"] == [{"token": []}]
        control.token = "secret"
        assert control.get("/v1/broker")["running"] is True


def test_initial_faults_are_active_from_the_start(tmp_path: Path) -> None:
    (tmp_path / "faults.yaml").write_text("- {api: Produce, error: TOPIC_AUTHORIZATION_FAILED}\n")
    with running_broker(tmp_path, options=("--faults", str(tmp_path / "faults.yaml"))) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        failed: list[Any] = []
        producer.produce("t", "a", on_delivery=lambda error, _: failed.append(error))
        producer.flush(20)
        assert failed[0].name() == "TOPIC_AUTHORIZATION_FAILED"


def test_a_served_process_emulates_an_older_release(tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--emulate", "2.0", "--control", "0")) as broker:
        control = Control(broker)
        assert produce(control, "a") == [None]
        assert control.get("/v1/requests?api=Produce")[0]["version"] == 6


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--control", "0.0.0.0:0"), "is open to other machines, which needs a token: --control-token"),
        (("--control", "0.0.0.0:0", "--control-token", ""), "--control-token is empty"),
        (("--control", "here"), "HOST:PORT or PORT is expected"),
        (("--faults", "missing.yaml"), "missing.yaml: No such file or directory"),
        (("--emulate", "5.0"), "'5.0' is not a known release"),
        (("--control-token", "secret"), "--control-token needs --control or --explorer"),
    ],
)
def test_options_that_prevent_the_start_are_reported(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    import subprocess

    done = subprocess.run(
        [*serve_command(tmp_path), *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment_for_broker({}),
    )
    assert done.returncode == 2 and said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
