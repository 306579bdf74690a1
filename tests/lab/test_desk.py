"""The desk answers messages as a server answers HTTP, for a new broker and for files that are opened."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.lab import desk as lab_desk
from minibroker.lab.desk import LabDesk
from minibroker.lab.lab_files import LabFileError
from minibroker.lab.lab_routes import LabBroker
from minibroker.protocol.errors import ErrorCode
from minibroker.testing import Broker


class Page:
    """Asks a desk, and keeps what it says."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.desk = LabDesk(self.messages.put_nowait)
        self._last = 0

    def send(self, method: str, target: str, body: Any = None) -> int:
        self._last += 1
        message = {"ask": self._last, "method": method, "target": target, "body": None, "headers": {}}
        if body is not None:
            message |= {"body": json.dumps(body), "headers": {"content-type": "application/json"}}
        self.desk.process_page_message(message)
        return self._last

    async def ask(self, method: str, target: str, body: Any = None) -> tuple[int, bytes]:
        number, content = self.send(method, target, body), b""
        status = 0
        while not (message := await self.messages.get()).get("end"):
            assert message["id"] == number
            status = message.get("status", status)
            content += message.get("piece", b"")
        return status, content

    async def data(self, path: str, body: Any = None) -> Any:
        status, content = await self.ask("GET" if body is None else "POST", f"/explorer/api/{path}", body)
        assert status in (200, 204), content
        return json.loads(content) if content else None


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    brokers: list[Broker] = []

    def made(*args: Any, **kwargs: Any) -> Broker:
        brokers.append(LabBroker(*args, **kwargs))
        return brokers[-1]

    monkeypatch.setattr(lab_desk, "LabBroker", made)
    monkeypatch.setitem(lab_desk.SETTINGS, "listeners", "PLAINTEXT://127.0.0.1:0")
    page = Page()
    yield page
    page.desk.clients.remove_all()
    for each in brokers:
        await each.astop()


async def test_a_new_lab_has_three_nodes_a_producer_and_a_consumer(page: Page) -> None:
    await page.desk.start()
    assert (await page.data("about"))["nodes"] == [1, 2, 3]
    assert [row["kind"] for row in await page.data("lab/clients")] == ["producer", "consumer"]
    status, content = await page.ask("GET", "/explorer/api/nothing")
    assert (status, json.loads(content)["message"]) == (404, "Not Found")


async def test_a_streamed_response_continues_until_the_page_stops_it(page: Page) -> None:
    await page.desk.start()
    number = page.send("GET", "/explorer/api/frames/stream?after=0")
    text = b""
    while b"event: frames" not in text:
        text += (await page.messages.get()).get("piece", b"")
    page.desk.process_page_message({"stop": number})
    for _ in range(20):  # each is a frame, and nothing of the stream comes between
        code = "import asyncio\nawait broker.aproduce('orders', 'tea')\nawait asyncio.sleep(0.02)"
        await page.data("lab/run", {"code": code})


async def test_clients_are_started_and_stopped_by_requests(page: Page) -> None:
    await page.desk.start()
    wanted = {"kind": "consumer", "topic": "orders", "name": "others"}
    number = (await page.data("lab/clients", wanted))["number"]
    await page.data(f"lab/clients/{number}/kill", {})
    assert (await page.data("lab/clients"))[-1]["state"] == "killed"
    await page.data(f"lab/clients/{number}/remove", {})
    assert len(await page.data("lab/clients")) == 2


async def test_the_python_code_of_a_request_is_run(page: Page) -> None:
    await page.desk.start()
    assert await page.data("lab/run", {"code": "broker.nodes"}) == {"said": "3\n"}


async def test_a_zstd_batch_is_rejected_without_the_zstd_library(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    await page.desk.start()
    code = """
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.records.building import build_batch
from minibroker.protocol.records.record import Record
of_topic = ProduceRequest.TopicProduceData
batch = memoryview(build_batch([Record(timestamp=0, key=b"k", value=b"tea")], compression=4))
topic = of_topic(name="orders", partition_data=[of_topic.PartitionProduceData(index=0, records=batch)])
leader = await client.find_leader(("orders", 0))
"""
    assert await page.data("lab/run", {"code": code}) == {"said": ""}
    for name in ("zstandard", "minibroker.protocol.records.standard_zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    code = """
request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
answer = await client.request(request, leader.node_id, highest=11)
answer.responses[0].partition_responses[0].error_code
"""
    said = await page.data("lab/run", {"code": code})
    assert said == {"said": f"{ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:d}\n"}


async def test_schemas_are_registered_by_messages_of_the_page(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    await page.desk.start()
    assert "schemas" in (await page.data("about"))["views"]

    async def register(kind: str, schema: str) -> tuple[int, dict[str, Any]]:
        body = json.dumps({"schemaType": kind, "schema": schema})
        asked = {"method": "POST", "path": "/subjects/orders-value/versions", "body": body}
        answer = await page.data("lab/registry", asked)
        return answer["status"], json.loads(answer["body"])

    status, said = await register("AVRO", '"string"')
    assert (status, said["version"]) == (200, 1)
    status, said = await register("AVRO", '"int"')
    assert (status, "incompatible" in said["message"]) == (409, True)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor", None)
    monkeypatch.delitem(sys.modules, "minibroker.registry.formats.protobuf", raising=False)
    status, said = await register("PROTOBUF", 'syntax = "proto3";')
    assert "is missing" in said["message"]
    found = await page.data("schemas")
    assert [(each["name"], each["latest"]) for each in found["subjects"]] == [("orders-value", 1)]


async def test_a_consumer_notices_a_flipped_bit(page: Page) -> None:
    await page.desk.start()
    page.desk.clients.remove_all()
    await page.data("lab/run", {"code": "await broker.aproduce('torn', 'tea')"})
    place = (await page.data("lab/flip", {"topic": "torn", "partition": 0, "offset": 0}))["place"]
    assert place == "byte 69 of torn-0, in the batch with offset 0"
    number = (await page.data("lab/clients", {"kind": "consumer", "topic": "torn", "name": "careful"}))["number"]
    while (row := (await page.data("lab/clients"))[-1])["state"] == "runs":
        await asyncio.sleep(0)
    assert row["number"] == number
    assert row["said"].startswith("CORRUPT_MESSAGE")
    status, _ = await page.ask("POST", "/explorer/api/lab/flip", {"topic": "torn", "partition": 0, "offset": 9})
    assert status == 409  # OFFSET_OUT_OF_RANGE


async def test_a_saved_state_is_opened_with_its_logs_and_its_frames(page: Page, tmp_path: Path) -> None:
    await page.desk.start()
    await page.data("lab/run", {"code": "await broker.aproduce('kept', 'tea')"})
    while (await page.ask("GET", "/explorer/api/frames/1"))[0] != 200:
        await asyncio.sleep(0)
    _, content = await page.ask("GET", "/explorer/api/lab/file")
    saved = tmp_path / "state.zip"
    saved.write_bytes(content)
    page.desk.clients.remove_all()
    await page.desk.open_file(saved)
    assert "kept" in [topic["name"] for topic in (await page.data("topics"))["topics"]]
    assert (await page.data("frames/1"))["title"]
    assert (await page.data("about"))["nodes"] == [1, 2, 3]


async def test_files_of_logs_that_no_broker_can_open_are_shown(page: Page, tmp_path: Path) -> None:
    saved = tmp_path / "strange.zip"
    with zipfile.ZipFile(saved, "w") as archive:
        archive.writestr("meta.properties", "version=1\nnode.id=1\ncluster.id=\n")
        archive.writestr("__cluster_metadata-0/00000000000000000000.log", b"no batch" * 20)
    await page.desk.open_file(saved)
    about = await page.data("about")
    assert about["views"] == ["frames", "files"]
    assert about["path"].startswith("strange.zip, with which no broker starts: ")
    assert len((await page.data("files"))["files"]) == 2


@pytest.mark.parametrize(
    ("version", "name", "shown"),
    [(b"1", b"node.id", [7]), (b"0", b"broker.id", "was written by a Kafka with ZooKeeper")],
)
async def test_a_broker_with_the_node_id_of_the_saved_logs_opens_them(
    page: Page, tmp_path: Path, version: bytes, name: bytes, shown: object
) -> None:
    logs = tmp_path / "logs"
    async with Broker({"node.id": 7}, directory=logs) as broker:
        await broker.aproduce("kept", "tea")
    identity = logs / "meta.properties"
    identity.write_bytes(identity.read_bytes().replace(b"node.id", name).replace(b"version=1", b"version=" + version))
    saved = tmp_path / "kafka.zip"
    with zipfile.ZipFile(saved, "w") as archive:
        for path in logs.rglob("*"):
            archive.write(path, path.relative_to(logs))
    await page.desk.open_file(saved)
    about = await page.data("about")
    found = about["nodes"] if "nodes" in about else re.search("was written by [^,]*", about["path"])[0]  # type: ignore[index]
    assert found == shown


async def test_saved_frames_are_shown_without_logs(page: Page, tmp_path: Path) -> None:
    await page.desk.start()
    _, content = await page.ask("GET", "/explorer/api/lab/file")
    saved = tmp_path / "state.zip"
    saved.write_bytes(content)
    with zipfile.ZipFile(saved) as archive:
        archive.extract("frames.flows", tmp_path)
    await page.desk.open_file(tmp_path / "frames.flows")
    assert (await page.data("about"))["views"] == ["frames"]
    with pytest.raises(LabFileError):
        await page.desk.open_file(_written(tmp_path / "no.zip", b"PK\x03\x04 no archive"))


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path
