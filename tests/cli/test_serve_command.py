"""`minibroker serve`, each time as a process: how it starts, how it ends, and what it refuses to start with."""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.testing.embedded.certificates import CertificateAuthority
from tests.broker.harness import frame_of
from tests.running import PATIENCE_S, environment_for_broker, running_broker, serve_command


def refused(directory: Path, *settings: str, env: dict[str, str] | None = None) -> str:
    """Return what serve says on stderr before it exits with status 2."""
    run = subprocess.run(
        serve_command(directory, *settings),
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment_for_broker(env or {}),
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("minibroker: ") and run.stderr.count("\n") == 1
    return run.stderr.removeprefix("minibroker: ").rstrip("\n")


def test_serve_prints_its_addresses_and_ends_with_status_0(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        host, port = broker.bootstrap_servers.split(":")
        socket.create_connection((host, int(port)), 10).close()
        assert broker.stop() == 0


@pytest.mark.parametrize("others", [(), ("registry", "control")])
def test_serve_ends_when_its_stdin_closes(tmp_path: Path, others: tuple[str, ...]) -> None:
    ready = tmp_path / "ready"
    own = ["--until-stdin-closes", "--temporary", "--ready-file", str(ready)]
    command = serve_command(tmp_path) + own + [word for name in others for word in (f"--{name}", "0")]
    env = environment_for_broker({"TMPDIR": str(tmp_path)})
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline().startswith("minibroker listens on 127.0.0.1:")
        listener, *named = (line.split(" ") for line in ready.read_text().splitlines())
        assert len(listener) == 1 and tuple(name for name, _ in named) == others
        (data,) = tmp_path.glob("minibroker-data-*")
        assert (data / "meta.properties").is_file() and not (tmp_path / "data").exists()
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0
    assert not data.exists()


def test_serve_stops_cleanly_if_stdin_is_closed_at_its_start(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", *serve_command(tmp_path), "--until-stdin-closes"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment_for_broker({}))
    assert (run.returncode, run.stderr) == (0, "")


def test_serve_prints_an_address_for_each_node(tmp_path: Path) -> None:
    with running_broker(tmp_path, nodes=3) as broker:
        addresses = broker.bootstrap_servers.split(",")
        assert len(set(addresses)) == 3
        for address in addresses:
            host, port = address.split(":")
            socket.create_connection((host, int(port)), 10).close()


def test_serve_restarts_after_a_kill(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.kill()
        broker.start()


def test_a_setting_without_effect_causes_a_warning_with_its_name(tmp_path: Path) -> None:
    with running_broker(tmp_path, "num.io.threads=4", env={"MINIBROKER_LOG_LOCAL_RETENTION_MS": "1"}) as broker:
        assert "num.io.threads is accepted by Kafka but has no effect here: one event loop" in broker.log
        assert "log.local.retention.ms is accepted by Kafka" in broker.log


@pytest.mark.parametrize("options", [(), ("--emulate", "4.3"), ("--control", "127.0.0.1:0")])
def test_an_unsupported_setting_causes_only_one_warning(tmp_path: Path, options: tuple[str, ...]) -> None:
    with running_broker(tmp_path, "num.io.threads=4", options=options) as broker:
        assert broker.log.count("num.io.threads is accepted by Kafka") == 1


def test_only_the_requested_log_level_is_logged(tmp_path: Path) -> None:
    with running_broker(tmp_path, "num.io.threads=4", options=("--log-level", "error")) as broker:
        assert broker.log == ""


def test_the_data_is_in_the_working_directory_by_default(tmp_path: Path) -> None:
    with running_broker(tmp_path, "log.dirs=./minibroker-data"):
        assert (tmp_path / "minibroker-data" / "meta.properties").is_file()


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("log.segment.byte=1", "unknown setting log.segment.byte; did you mean log.segment.bytes?"),
        ("log.segment.bytes=1", "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"),
        (
            "listeners=SSL://127.0.0.1:0",
            "listener SSL: it has no key: set ssl.keystore.location, or ssl.keystore.key and certificate.chain",
        ),
    ],
)
def test_an_invalid_setting_is_rejected_before_anything_is_changed(
    tmp_path: Path, setting: str, complaint: str
) -> None:
    assert refused(tmp_path, setting).endswith(complaint)
    assert not any(tmp_path.iterdir())


def test_an_invalid_environment_variable_is_rejected_by_name(tmp_path: Path) -> None:
    env = {"MINIBROKER_NUM_PARTITIONS": "no"}
    assert refused(tmp_path, env=env).startswith("environment variable MINIBROKER_NUM_PARTITIONS: Invalid value no")


def test_a_missing_settings_file_is_rejected(tmp_path: Path) -> None:
    command = [*serve_command(tmp_path), "none.properties"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert (run.returncode, run.stderr) == (2, "minibroker: none.properties: No such file or directory\n")


def test_a_port_in_use_is_rejected_before_anything_is_changed(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert address in refused(tmp_path, f"listeners=PLAINTEXT://{address}")
    assert not any(tmp_path.iterdir())


def test_a_corrupt_metadata_log_is_rejected_in_one_line_unless_accepted(tmp_path: Path) -> None:
    with running_broker(tmp_path, "log.dirs=data"):
        pass
    (file,) = tmp_path.glob("data/__cluster_metadata-0/*.log")
    file.write_bytes(file.read_bytes()[:-100])
    complaint = refused(tmp_path, "log.dirs=data")
    assert str(file.relative_to(tmp_path)) in complaint
    assert (
        "`minibroker repair data` rebuilds what it can, --set accept.lost.metadata=true starts without it" in complaint
    )
    with running_broker(tmp_path, "log.dirs=data", "accept.lost.metadata=true"):
        pass


def test_a_directory_that_cannot_be_created_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(tmp_path, f"log.dirs={tmp_path / 'file' / 'data'}")


def test_a_directory_in_use_is_rejected(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        before = sorted(file.name for file in (tmp_path / "data").iterdir())
        assert str(tmp_path / "data") in refused(tmp_path)
        assert sorted(file.name for file in (tmp_path / "data").iterdir()) == before
        assert broker.process.poll() is None


def test_metrics_are_served_at_the_printed_address(tmp_path: Path) -> None:
    with running_broker(tmp_path, options=("--metrics-port", "0"), nodes=2) as broker:
        (address,) = re.findall(r"metrics are at (http://127\.0\.0\.1:\d+/metrics)", broker.log)
        create = ["topics", "create", "t", "--bootstrap-server", broker.bootstrap_servers]
        subprocess.run([sys.executable, "-m", "minibroker", *create], check=True, capture_output=True)
        with urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode()
        assert 'minibroker_requests_total{api="CreateTopics"' in text
        assert 'minibroker_log_end_offset{partition="0",topic="t"} 0.0' in text
        assert 'minibroker_fetch_sessions{node="2"} 0.0' in text
        assert broker.stop() == 0
        with pytest.raises(OSError):
            urllib.request.urlopen(address, timeout=30)


def test_metrics_are_served_with_the_certificate_of_a_listener(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    own = authority.issue_certificate("broker", ("127.0.0.1",))
    stores = {"type": "PEM", "key": own.key, "certificate.chain": own.certificate}
    settings = [f"ssl.keystore.{name}={text}" for name, text in stores.items()]
    with running_broker(
        tmp_path, "listeners=SSL://127.0.0.1:0", *settings, options=("--metrics-port", "0", "--metrics-tls")
    ) as broker:
        (address,) = re.findall(r"metrics are at (https://127\.0\.0\.1:\d+/metrics)", broker.log)
        trusting = ssl.create_default_context(cadata=authority.certificate)
        with urllib.request.urlopen(address, timeout=30, context=trusting) as answer:
            assert b"minibroker_connections{" in answer.read()
        with pytest.raises(OSError):
            urllib.request.urlopen(address.replace("https", "http"), timeout=30)


@pytest.mark.parametrize("option", ["--cluster-id", "--control", "--emulate", "--faults", "--ready-file", "--registry"])
def test_an_option_with_an_empty_value_is_rejected(tmp_path: Path, option: str) -> None:
    command = [*serve_command(tmp_path), option, ""]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert (run.returncode, run.stderr) == (2, f"minibroker: {option}: the value is empty\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metrics-tls"], "--metrics-tls needs --metrics-port"),
        (["--metrics-tls", "--metrics-port", "0"], "--metrics-tls needs a listener with TLS"),
    ],
)
def test_metrics_need_a_port_and_a_certificate_for_tls(tmp_path: Path, options: list[str], message: str) -> None:
    command = [*serve_command(tmp_path), *options]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert (run.returncode, message in run.stderr) == (2, True)
    assert not any(tmp_path.iterdir())


def test_a_metrics_port_in_use_is_rejected_before_anything_is_changed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [*serve_command(tmp_path), "--metrics-port", str(port)]
        run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert run.returncode == 2
    assert run.stderr.startswith(f"minibroker: cannot listen on 127.0.0.1:{port}: ") and run.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_start_imports_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    with running_broker(tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"}) as broker:
        assert "minibroker.broker.process" in broker.log
        assert not re.findall(r"\b(?:prometheus_client|click|rich|h11|msgspec|cryptography)\b", broker.log)


def test_log_lines_are_json_on_request(tmp_path: Path) -> None:
    options = ("--log-format", "json")
    with running_broker(tmp_path, "num.io.threads=4", options=options) as broker:
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), 10) as client:
            client.sendall(bytes.fromhex("0000000a0003006300000001ffff"))  # Metadata of version 99
            assert client.recv(1) == b""
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log.splitlines()]
    assert lines[0]["message"].startswith("num.io.threads is accepted by Kafka but has no effect here: ")
    (closing,) = (line for line in lines if line["logger"] == "minibroker.connections")
    assert (closing["level"], closing["api"], closing["version"]) == ("WARNING", "Metadata", 99)
    assert closing["peer"].startswith("127.0.0.1:")
    assert (closing["listener"], closing["software"]) == ("PLAINTEXT", None)


@pytest.mark.parametrize("option", ["--control=0", "--explorer"])
def test_serve_names_the_optional_library_that_is_missing(tmp_path: Path, option: str) -> None:
    arguments = serve_command(tmp_path)[3:]  # after `python -m minibroker`
    program = (
        f"import sys; sys.modules['msgspec'] = None\nfrom minibroker.cli.main import main; main({[*arguments, option]})"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment_for_broker({})
    )
    remedy = "the HTTP control needs the extra control: python3 -m pip install msgspec h11 pyyaml"
    assert (run.returncode, run.stdout, run.stderr) == (2, "", f"minibroker: {remedy}\n")


@pytest.mark.parametrize("kit", [(), ("--control", "0")])
def test_json_logs_contain_start_and_stop_events(tmp_path: Path, kit: tuple[str, ...]) -> None:
    with running_broker(tmp_path, options=("--log-format", "json", *kit)) as broker:
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log.splitlines()]
    assert [line["event"] for line in lines] == ["started", "stopping", "stopped"]
    assert lines[0]["message"] == f"minibroker listens on {broker.bootstrap_servers}"


@pytest.mark.parametrize("kit", [(), ("--control", "0")])
def test_text_logs_contain_no_start_and_stop_events(tmp_path: Path, kit: tuple[str, ...]) -> None:
    with running_broker(tmp_path, options=kit) as broker:
        assert broker.stop() == 0
        assert broker.log == ""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("num.partitions=no", "Invalid value no"), ("test.issuer=nowhere", "an issuer need security")],
)
def test_json_logs_contain_the_reason_of_a_failed_start(tmp_path: Path, setting: str, reason: str) -> None:
    command = [*serve_command(tmp_path, setting), "--log-format", "json"]
    run = subprocess.run(command, capture_output=True, text=True, env=environment_for_broker({}))
    said = json.loads(run.stderr)
    assert (run.returncode, said["level"], said["event"]) == (2, "CRITICAL", "failed")
    assert reason in said["message"]


def test_imported_modules_are_excluded_from_garbage_collection() -> None:
    program = (
        "import gc; from minibroker.broker import process; from minibroker.cli.main import main;"
        "serve = lambda *_, **__: print(gc.isenabled(), gc.get_freeze_count() > 10_000) or 0;"
        "process.serve_until_signal = serve; main(['serve'])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "True True\n"


@pytest.mark.parametrize("log_format", [pytest.param("text", marks=pytest.mark.thorough), "json"])
def test_log_lines_of_rejected_requests_have_a_bounded_length(tmp_path: Path, log_format: str) -> None:
    """A request of 92 kB, to 8,000 partitions that are not there, made 322 MB of log in 0.3 s; here 20 of them."""
    Data = ProduceRequest.TopicProduceData
    partitions = [Data.PartitionProduceData(index=index, records=None) for index in range(8_000)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[Data(name="t", partition_data=partitions)])
    frame = frame_of(request, 3, client_id="x\n2026 CRITICAL minibroker: all is lost\x1b[2J\u2028" + 28_000 * "y")
    with running_broker(tmp_path, options=("--log-format", log_format)) as broker:
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with (
            socket.create_connection((host, int(port)), timeout=60) as connection,
            connection.makefile("rb") as answers,
        ):
            for _ in range(20):
                connection.sendall(frame)
                (size,) = struct.unpack(">i", answers.read(4))
                assert len(answers.read(size)) == size > 8_000
    lines = broker.log.split("\n")
    refused = [line for line in lines if "Produce from x\\\\n2026" in line or "Produce from x\\n2026" in line]
    assert 0 < len(refused) <= 20
    assert "t-0 and 7999 more: UNKNOWN_TOPIC_OR_PARTITION" in refused[0]
    assert len(broker.log) < 100_000 and all(line.isprintable() for line in lines)
    assert not any(line.startswith("2026 ") for line in lines)
    left_out = [int(count) for count in re.findall(r"lines left out within a second: (\d+)", broker.log)]
    assert len(refused) + sum(left_out) == 20


def test_an_unusable_key_store_is_rejected_before_anything_is_changed(tmp_path: Path) -> None:
    settings = ("listeners=SSL://127.0.0.1:0", "ssl.keystore.location=/no/such.p12", "ssl.keystore.password=secret")
    complaint = "listener SSL: ssl.keystore.location: /no/such.p12: No such file or directory"
    assert refused(tmp_path, *settings) == complaint
    assert not any(tmp_path.iterdir())


def test_a_public_listener_without_authentication_causes_a_warning(tmp_path: Path) -> None:
    told = "other machines reach OUTSIDE without authentication, and may read and change all"
    map = "listener.security.protocol.map=OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT"
    outside = "listeners=OUTSIDE://0.0.0.0:0,INSIDE://127.0.0.1:0"
    advertised = "advertised.listeners=OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0"
    with running_broker(tmp_path, map, outside, advertised) as broker:
        assert told in broker.log
    with running_broker(tmp_path, map, "listeners=INSIDE://127.0.0.1:0") as broker:
        assert broker.log.count(told) == 1, "that of the first start"


def test_a_cluster_starts_with_users(tmp_path: Path) -> None:
    options = ("--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]")
    with running_broker(tmp_path, "log.dirs=data", options=options) as broker:
        assert "credentials" not in broker.log
    assert any(b"alice" in file.read_bytes() for file in _metadata(tmp_path))
    with running_broker(tmp_path, "log.dirs=data", options=options) as broker:
        assert "WARNING minibroker.cluster: this cluster has begun already: the credentials for a new one" in broker.log
    assert not any(b"secret" in file.read_bytes() for file in _metadata(tmp_path))


def _metadata(directory: Path) -> list[Path]:
    return list(directory.glob("data/__cluster_metadata-0/*.log"))


@pytest.mark.parametrize("more", [(), ("--control", "0")])
def test_an_invalid_user_is_rejected_before_anything_is_changed(tmp_path: Path, more: tuple[str, ...]) -> None:
    command = [*serve_command(tmp_path), *more, "--add-scram", "SCRAM-SHA-256=[name=a,secret]"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment_for_broker({}))
    assert (run.returncode, run.stderr) == (2, "minibroker: --add-scram: No equals sign found in SCRAM component\n")
    assert not any(tmp_path.iterdir())


def test_a_cluster_with_the_control_api_starts_with_users(tmp_path: Path) -> None:
    options = ("--control", "0", "--add-scram", "SCRAM-SHA-256=[name=alice,password=alice-secret]")
    with running_broker(tmp_path, options=options):
        pass
    assert any(b"alice" in file.read_bytes() for file in _metadata(tmp_path))


@pytest.mark.parametrize(("security", "is_told"), [("SSL", True), ("SASL_PLAINTEXT", False)])
def test_the_test_kits_public_listener_causes_a_warning_without_authentication(
    tmp_path: Path, security: str, is_told: bool
) -> None:
    listeners = ("listeners=PLAINTEXT://0.0.0.0:0", "advertised.listeners=PLAINTEXT://127.0.0.1:0")
    with running_broker(tmp_path, *listeners, f"test.security={security}") as broker:
        assert ("other machines reach PLAINTEXT without authentication" in broker.log) == is_told


@pytest.mark.parametrize("kit", [(), ("--faults", "faults.yaml")])
def test_a_new_cluster_has_the_given_cluster_id(tmp_path: Path, kit: tuple[str, ...]) -> None:
    (tmp_path / "faults.yaml").write_text("[]\n")
    for given in ("first-id", "second-id"):
        with running_broker(tmp_path, "log.dirs=data", options=("--cluster-id", given, *kit)):
            assert "cluster.id=first-id" in (tmp_path / "data" / "meta.properties").read_text()


def test_a_registry_without_its_libraries_names_the_extra(tmp_path: Path) -> None:
    arguments = ["serve", "--set", f"log.dirs={tmp_path / 'data'}", "--set", "listeners=PLAINTEXT://127.0.0.1:0"]
    arguments += ["--registry", "0"]
    program = f"import sys; sys.modules['h11'] = None\nfrom minibroker.cli.main import main; main({arguments})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    said = "minibroker: the schema registry needs the extra registry: python3 -m pip install h11 "
    assert (ended.returncode != 0, said in ended.stderr, "Traceback" in ended.stderr) == (True, True, False)
