"""The state of a registry is the topic `_schemas`: it lives as long, and others may write it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from minibroker.registry.api.http_messages import Request
from minibroker.registry.api.registry_api import RegistryApi
from minibroker.registry.state.registry import NewSchema
from minibroker.storage.log import Log
from minibroker.testing import Broker
from tests.registry.asking import Asking, record
from tests.running import PATIENCE_S, RunningBroker, running_broker, serve_command

R1, R2 = record("R", ("a", "int")), record("R", ("a", "int"), ("b?", "int"))
R3 = record("R", ("a", "int"), ("b?", "int"), ("c?", "int"))


def test_the_registry_is_reset_restored_and_restarted_with_the_broker(broker: Broker, registry: Asking) -> None:
    registry.register("x", R1)
    snapshot = broker.snapshot()
    registry.register("x", R2)
    broker.restart()
    assert registry.get("/subjects/x/versions").body == [1, 2]
    broker.restore(snapshot)
    assert registry.get("/subjects/x/versions").body == [1]
    broker.reset()
    assert registry.get("/subjects").body == []
    assert registry.register("y", R2).body["id"] == 1


def test_acknowledged_schemas_survive_a_crash(broker: Broker, registry: Asking) -> None:
    registry.register("x", R1)
    url = broker.registry_url
    broker.kill()
    with pytest.raises(ConnectionError):
        registry.get("/subjects")
    broker.restart()
    assert broker.registry_url == url
    assert registry.get("/subjects").body == ["x"]


def test_acknowledged_schemas_and_configs_of_a_process_survive_kill_9(tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--registry", "0")) as process:
        registry = Asking(_announced_by(process))
        assert registry.register("x", R1).body["id"] == 1
        registry.put("/config/x", {"compatibility": "FULL"})
        process.kill()
        process.start()
        registry = Asking(_announced_by(process))
        assert registry.get("/subjects").body == ["x"]
        assert registry.get("/config/x").body == {"compatibilityLevel": "FULL"}


def test_the_registry_supports_several_log_directories(tmp_path: Path) -> None:
    directories = f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"
    with running_broker(tmp_path, directories, options=("--registry", "0")) as process:
        assert Asking(_announced_by(process)).register("x", R1).body["id"] == 1
        process.restart()
        assert Asking(_announced_by(process)).get("/subjects").body == ["x"]
        assert process.stop() == 0


@pytest.mark.parametrize(("address", "problem"), [("x:y", "--registry x:y: "), ("{taken}", "{taken}")])
def test_an_unavailable_registry_address_is_an_error(tmp_path: Path, address: str, problem: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        command = [*serve_command(tmp_path), "--registry", address.format(taken=taken)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert run.returncode == 2 and problem.format(taken=taken) in run.stderr


def _announced_by(broker: RunningBroker) -> str:
    assert broker.process.stdout is not None
    found = re.fullmatch(rb"minibroker has a schema registry at (\S+)\n", broker.process.stdout.readline())
    assert found is not None
    return found[1].decode()


def test_a_schemas_topic_of_confluents_registry_is_loaded(broker: Broker, registry: Asking) -> None:
    """Records of release 8, which has more fields than this registry writes."""
    broker.create_topic("_schemas", cleanup_policy="compact")
    text = json.dumps(R1)
    lines = [
        ('{"keytype":"NOOP","magic":0}', None),
        (
            '{"keytype":"SCHEMA","subject":"a","version":3,"magic":1}',
            json.dumps({"subject": "a", "version": 3, "id": 17, "md5": "x", "schema": text, "deleted": False, "ts": 1}),
        ),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL","validateFields":false}'),
        ('{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}', '{"tenant":"default","context":".c"}'),
        ("what is this", "?"),
        ('{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', '{"id":"one"}'),
    ]
    broker.fill({"_schemas": [{"key": key, "value": value} for key, value in lines]})
    assert registry.get("/subjects/a/versions/3").body["id"] == 17
    assert registry.get("/subjects").body == ["a"]
    assert registry.get("/config").body["compatibilityLevel"] == "FULL"
    assert registry.get("/contexts").body == [".", ".c"]
    assert registry.register("a", R2).body["id"] == 18


@pytest.mark.parametrize(
    "value",
    [
        '{"id":1,"schema":"\\"int\\"","metadata":"text"}',
        '{"id":1,"schema":"\\"int\\"","metadata":{"properties":["a"]}}',
        '{"id":1,"schema":"\\"int\\"","ruleSet":{"domainRules":[{"name":5}]}}',
        '{"id":1,"schema":"\\"int\\"","references":5}',
        '{"id":1,"schema":' + "[" * 100_000,
    ],
    ids=["metadata", "properties", "rule", "references", "depth"],
)
def test_a_record_that_is_not_a_schema_is_skipped(broker: Broker, registry: Asking, value: str) -> None:
    broker.produce("_schemas", value, key='{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}')
    assert registry.register("y", R1).body["id"] == 1
    assert registry.get("/subjects").body == ["y"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("CONFIG", '{"compatibilityLevel":5}'),
        ("CONFIG", '{"compatibilityLevel":"SOMETIMES"}'),
        ("CONFIG", '{"alias":["x"]}'),
        ("CONFIG", '{"compatibilityGroup":{}}'),
        ("CONFIG", '{"normalize":"yes"}'),
        ("CONFIG", '{"defaultMetadata":7}'),
        ("CONFIG", '{"overrideMetadata":{"properties":[]}}'),
        ("CONFIG", '{"defaultRuleSet":{"domainRules":{}}}'),
        ("MODE", '{"mode":5}'),
        ("MODE", '{"mode":"SLEEPING"}'),
        ("DELETE_SUBJECT", '{"version":"1"}'),
    ],
)
def test_a_config_or_mode_record_with_a_wrong_type_is_skipped(
    broker: Broker, registry: Asking, caplog: pytest.LogCaptureFixture, kind: str, value: str
) -> None:
    registry.register("y", R1)
    for name in ('"y"', "null"):
        broker.produce("_schemas", value, key=f'{{"keytype":"{kind}","subject":{name},"magic":0}}')
    assert registry.get("/config/y?defaultToGlobal=true").body == {"compatibilityLevel": "BACKWARD"}
    assert registry.get("/mode/y?defaultToGlobal=true").body == {"mode": "READWRITE"}
    assert registry.register("y", R2).body["version"] == 2
    assert registry.get("/subjects").body == ["y"]
    assert "_schemas: the record at offset 1 is skipped: " in caplog.text


def test_unsupported_settings_of_other_registries_are_kept(broker: Broker, registry: Asking) -> None:
    registry.register("y", R1)
    value = '{"subject":"y","compatibilityLevel":"NONE","validateFields":null,"alias":null,"new":{"a":1}}'
    broker.produce("_schemas", value, key='{"keytype":"CONFIG","subject":"y","magic":0}')
    assert registry.get("/config/y").body["compatibilityLevel"] == "NONE"
    assert registry.register("y", "int").body["version"] == 2


def test_a_stored_schema_with_an_invalid_default_is_compared(broker: Broker, registry: Asking) -> None:
    """Confluent's registry checks the defaults of new schemas that it normalizes, and no others."""
    invalid = {**R1, "fields": [{"name": "a", "type": "int", "default": "one"}]}
    key = '{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}'
    value = {"subject": "x", "version": 1, "id": 1, "schema": json.dumps(invalid), "deleted": False}
    broker.fill({"_schemas": [{"key": key, "value": value}]})
    assert registry.register("x", invalid).body["id"] == 1
    broker.produce("t", b"\0\0\0\0\1\2")
    assert broker.records("t", decoded=True)[0].decoded == {"a": 1}
    normalized = {"schema": json.dumps(invalid)}
    refused = registry.ask("POST", "/subjects/y/versions?normalize=true", normalized)
    assert refused.code == 42201 and "Invalid default for field a" in refused.body["message"]
    assert registry.register("y", invalid).body["id"] == 2  # its text is the canonical one
    assert registry.ask("POST", "/subjects/y", normalized).body["id"] == 2
    assert registry.register("x", R1).body["version"] == 2


def test_records_of_other_writers_are_applied_immediately(broker: Broker, registry: Asking) -> None:
    registry.register("x", R1)
    key = '{"keytype":"DELETE_SUBJECT","subject":"x","magic":0}'
    broker.produce("_schemas", '{"subject":"x","version":1}', key=key)
    assert registry.get("/subjects").body == []
    broker.truncate("_schemas", 1)
    assert registry.get("/subjects").body == ["x"]


def test_deleting_the_schemas_topic_empties_the_registry(broker: Broker, registry: Asking) -> None:
    registry.register("x", R1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "_schemas")]).values()
    assert future.result()["cleanup.policy"].value == "compact"
    admin.delete_topics(["_schemas"])["_schemas"].result()
    assert registry.get("/subjects?deleted=true").body == []
    assert registry.register("y", R2).body["id"] == 1


def test_a_broker_without_a_registry_has_no_url() -> None:
    with Broker() as broker, pytest.raises(RuntimeError, match="Broker\\(registry=True\\)"):
        _ = broker.registry_url


def test_a_failed_write_is_an_error_and_the_state_follows_the_log(
    broker: Broker, registry: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.register("x", R1)

    def fail(log: Log, *written: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(Log, "_write_batches", fail)
        assert registry.register("x", R2).code == 50001
        assert registry.get("/subjects/x/versions").body == [1]
    broker.restart()
    assert registry.get("/subjects/x/versions").body == [1]
    assert registry.register("x", R2).body["id"] == 2


def test_a_broker_without_a_registry_imports_none_of_its_modules() -> None:
    program = (
        "import sys\n"
        "from minibroker.testing import Broker\n"
        "with Broker() as broker:\n"
        "    broker.produce('t', 'a')\n"
        "loaded = [name for name in sys.modules if name.startswith(('minibroker.registry', 'h11', 'fastavro'))]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


async def test_concurrent_config_changes_are_all_kept() -> None:
    async with Broker(registry=True) as broker:
        registry = broker.registry._running_registry.registry
        api = RegistryApi(registry)
        asked = [b'{"compatibility":"FULL"}', b'{"normalize":true}', b'{"alias":"y"}']
        async with registry._writing:  # as while a large schema is parsed
            changing = [
                asyncio.create_task(api.answer(Request("PUT", ["config", "x"], "", {}, body))) for body in asked
            ]
            await asyncio.sleep(0)
        await asyncio.gather(*changing)
        found = (await registry.read_state()).configs["x"]
        assert found == {"compatibilityLevel": "FULL", "normalize": True, "alias": "y"}


async def test_a_compatibility_level_that_others_set_meanwhile_is_enforced() -> None:
    async with Broker(registry=True) as broker:
        registry = broker.registry._running_registry.registry
        await broker.registry.aregister("x", json.dumps(R1))
        parse, is_first = registry.formats.parse_schema, True

        async def parse_and_write(*given: Any, **more: Any) -> Any:
            nonlocal is_first
            parsed = await parse(*given, **more)
            if is_first:
                is_first = False
                key = '{"keytype":"CONFIG","subject":"x","magic":0}'
                await broker.aproduce("_schemas", '{"compatibilityLevel":"NONE"}', key=key)
            return parsed

        registry.formats.parse_schema = parse_and_write  # type: ignore[method-assign]
        assert (await registry.register_schema("x", NewSchema('"int"'))).version == 2


async def test_large_schemas_and_many_versions_do_not_block_the_event_loop() -> None:
    """Others have their turns meanwhile."""
    async with Broker(registry=True) as broker:
        await broker.registry.aset_compatibility("BACKWARD_TRANSITIVE")
        for number in range(60):
            await broker.registry.aregister("x", record("R", *((f"f{each}?", "int") for each in range(number))))
        large = record("R", *((f"f{each}?", "string") for each in range(3000)))
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await broker.registry.aregister("y", large)
        counting.cancel()
        assert turns > 5


async def test_a_large_registration_yields_to_other_work_in_the_event_loop() -> None:
    """Otherwise nothing lets others have turns in this request: its schema was parsed before, and is not written."""
    async with Broker(registry=True) as broker:
        large = record("R", *((f"f{each}?", "string") for each in range(1500)))
        await broker.registry.aregister("x", large)
        body = json.dumps({"schema": json.dumps(large)}).encode()
        turns, turns_before_answer = 0, -1

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body}

        async def send(message: Any) -> None:
            nonlocal turns_before_answer
            turns_before_answer = max(turns_before_answer, turns)

        scope = {"type": "http", "method": "POST", "path": "/subjects/x", "query_string": b"", "headers": []}
        counting = asyncio.create_task(count())
        await broker.registry._running_registry._asgi(scope, receive, send)
        counting.cancel()
        assert turns_before_answer >= 4


async def test_a_version_is_returned_only_once_it_is_written() -> None:
    """Meanwhile, readers have the state before, which is not read again for them."""
    async with Broker(registry=True) as broker:
        registry = broker.registry._running_registry.registry
        await broker.registry.aregister("x", R1)
        await registry.read_state()
        begins, turn, held = registry._topic._begins, broker.running.cluster.turn, []
        turn.bind_to_loop(held.append)
        registering = asyncio.create_task(broker.registry.aregister("x", R2))
        while not held:
            await asyncio.sleep(0)
        assert [sorted((await registry.read_state()).versions["x"]) for _ in range(3)] == [[1]] * 3
        assert not registering.done()
        turn.bind_to_loop(asyncio.get_running_loop().call_soon)
        for end_turn in held:
            end_turn()
        assert await registering == 2
        assert sorted((await registry.read_state()).versions["x"]) == [1, 2]
        assert registry._topic._begins == begins


async def test_a_registration_takes_account_of_pending_records_of_other_writers() -> None:
    async with Broker(registry=True) as broker:
        await broker.registry.aregister("x", R1)
        key = '{"keytype":"SCHEMA","subject":"x","version":2,"magic":1}'
        value = json.dumps({"subject": "x", "version": 2, "id": 7, "schema": json.dumps(R2), "deleted": False})
        turn, held = broker.running.cluster.turn, []
        turn.bind_to_loop(held.append)
        writing = asyncio.create_task(broker.aproduce("_schemas", value, key=key))
        while not held:
            await asyncio.sleep(0)
        registering = asyncio.create_task(broker.registry.aregister("x", R3))
        for _ in range(5):
            await asyncio.sleep(0)
        turn.bind_to_loop(asyncio.get_running_loop().call_soon)
        for end_turn in held:
            end_turn()
        await writing
        assert await registering == 8
        assert sorted((await broker.registry._running_registry.registry.read_state()).versions["x"]) == [1, 2, 3]


def test_the_registry_starts_after_retention_deleted_its_first_records(broker: Broker, registry: Asking) -> None:
    registry.register("x", R1)
    broker.restart()  # which forgets what was read
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    settings = {"cleanup.policy": "delete"}
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        "_schemas",
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ],
    )
    admin.incremental_alter_configs([resource])[resource].result()
    admin.delete_records([TopicPartition("_schemas", 0, 1)])[TopicPartition("_schemas", 0, 1)].result()
    assert registry.get("/subjects").body == []
