"""Settings from a file, the environment and the command line: which wins, and what a bad one is answered with."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.configs.listeners import get_listener_setting
from minibroker.broker.configs.settings import SettingsError
from minibroker.broker.configs.settings_table import RACK_AWARE
from minibroker.broker.configuration import FILE_SIZE_MAX, load_settings, make_setting_name_of_variable
from tests.cases import for_each

SHIPPED_WITH_KAFKA = """\
process.roles=broker,controller
node.id=4
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
num.partitions=2
log.retention.hours=168
"""


def properties(directory: Path, text: str) -> Path:
    file = directory / "server.properties"
    file.write_text(text, encoding="iso-8859-1")
    return file


def refusal(*assignments: str, file: Path | None = None, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as raised:
        load_settings(file, environment or {}, assignments)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_command_line_overrides_the_environment_and_the_file(tmp_path: Path) -> None:
    file = properties(tmp_path, "num.partitions=1\nnode.id=11\nlog.dirs=/file")
    environment = {"MINIBROKER_NUM_PARTITIONS": "2", "MINIBROKER_NODE_ID": "12", "PATH": "/bin"}
    settings = load_settings(file, environment, ["num.partitions=3"]).settings
    assert (settings["num.partitions"], settings["node.id"], settings["log.dirs"]) == (3, 12, ("/file",))


def test_the_later_of_two_assignments_of_a_setting_wins(tmp_path: Path) -> None:
    assert load_settings(properties(tmp_path, "node.id=1\nnode.id=2"), {}, []).settings["node.id"] == 2
    assert load_settings(None, {}, ["node.id=1", "node.id=2"]).settings["node.id"] == 2


def test_kafkas_default_file_is_accepted(tmp_path: Path) -> None:
    settings, warnings = load_settings(properties(tmp_path, SHIPPED_WITH_KAFKA), {}, [])
    assert (settings["node.id"], settings["num.partitions"]) == (4, 2)
    assert "num.network.threads is accepted by Kafka but has no effect here: one event loop serves all" in warnings
    assert not any("log.retention.hours" in warning for warning in warnings)
    assert any(warning.startswith("listener CONTROLLER is not opened") for warning in warnings)
    assert not any("num.partitions" in warning for warning in warnings)


def test_effective_settings_log_no_warning() -> None:
    assert load_settings(None, {}, ["num.partitions=3", "log.roll.hours=1"]).warnings == ()


def test_a_listeners_own_value_overrides_the_general_one() -> None:
    given = ["ssl.client.auth=required", "listener.name.plaintext.ssl.client.auth=none"]
    settings, warnings = load_settings(None, {}, given)
    assert warnings == ()
    assert get_listener_setting(settings, "ssl.client.auth", "PLAINTEXT") == "none"
    assert get_listener_setting(settings, "ssl.client.auth", "OTHER") == "required"


def test_a_setting_of_an_unknown_listener_is_reported() -> None:
    (warning,) = load_settings(None, {}, ["listener.name.internal.ssl.client.auth=none"]).warnings
    assert warning == "listener.name.internal.ssl.client.auth has no effect: listeners has no INTERNAL"


def test_an_invalid_value_of_one_listener_is_rejected() -> None:
    assert "String must be one of" in refusal("listener.name.plaintext.ssl.client.auth=maybe")


@pytest.mark.parametrize("name", ["offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"])
def test_segments_too_small_for_a_coordinator_topic_are_reported(name: str) -> None:
    assert load_settings(None, {}, [f"{name}=1048576"]).warnings == ()
    (warning,) = load_settings(None, {}, [f"{name}=1048575"]).warnings
    assert warning.startswith(f"{name} is too small") and "must be at least 1048576" in warning


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("MINIBROKER_LOG_RETENTION_MS", "log.retention.ms"),
        ("MINIBROKER_A__B", "a_b"),
        ("MINIBROKER_A___B", "a-b"),
        ("MINIBROKER_A____B", "a-.b"),
    ],
)
def test_an_environment_variable_names_a_setting_as_in_kafkas_image(variable: str, name: str) -> None:
    assert make_setting_name_of_variable(variable) == name


def test_variables_of_kafkas_image_are_settings_if_enabled() -> None:
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_BROKER_RACK": "a", "MINIBROKER_BROKER_RACK": "b"}
    assert load_settings(None, environment, []).settings["num.partitions"] == 1
    settings, warnings = load_settings(None, environment, [], kafka_variables=True)
    assert (settings["num.partitions"], settings["broker.rack"], warnings) == (3, "b", ())


def test_unknown_variables_of_kafkas_image_cause_a_warning() -> None:
    environment = {"KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181", "KAFKA_OPTS": "-Dx=y", "KAFKA_NUM_IO_THREADS": "1"}
    assert load_settings(None, environment, [], kafka_variables=True).warnings == (
        "environment variable KAFKA_OPTS has no effect: there is no JVM",
        "environment variable KAFKA_ZOOKEEPER_CONNECT has no effect: unknown setting zookeeper.connect",
        "num.io.threads is accepted by Kafka but has no effect here: one event loop serves all",
    )


def test_an_invalid_value_in_a_variable_of_kafkas_image_is_rejected() -> None:
    with pytest.raises(SettingsError, match="environment variable KAFKA_NUM_PARTITIONS: Invalid value 0"):
        load_settings(None, {"KAFKA_NUM_PARTITIONS": "0"}, [], kafka_variables=True)


@for_each(
    ("name", "hint"),
    [
        ("log.segment.byte", "unknown setting log.segment.byte; did you mean log.segment.bytes?"),
        ("ssl.key.pasword", "unknown setting ssl.key.pasword; did you mean ssl.key.password?"),
        ("segment.bytes", "unknown setting segment.bytes (a topic's; the broker's is log.segment.bytes)"),
        ("internal.segment.bytes", "unknown setting internal.segment.bytes"),
        ("port", "unknown setting port; did you mean listeners?"),
        ("zzz", "unknown setting zzz"),
    ],
)
def test_an_unknown_setting_name_is_rejected_with_the_nearest_known_one(name: str, hint: str) -> None:
    assert refusal(f"{name}=1") == f"--set {name}: {hint}"


def test_the_rejection_of_a_setting_names_its_file_line_variable_or_option(tmp_path: Path) -> None:
    file = properties(tmp_path, "# x\nnum.partitions=0")
    fault = "Invalid value 0 for configuration num.partitions: Value must be at least 1"
    assert refusal(file=file) == f"{file} line 2: {fault}"
    environment = {"MINIBROKER_NUM_PARTITIONS": "0"}
    assert refusal(environment=environment) == f"environment variable MINIBROKER_NUM_PARTITIONS: {fault}"
    assert refusal("num.partitions=0") == f"--set num.partitions=0: {fault}"


def test_a_value_of_several_lines_is_rejected_in_one_line() -> None:
    assert "Invalid value 1 2 for" in refusal("num.partitions=1\n2")


def test_a_setting_without_a_value_is_rejected() -> None:
    assert refusal("num.partitions") == "--set num.partitions: not of the form key=value"


def test_a_value_may_contain_an_equals_sign() -> None:
    assert load_settings(None, {}, ["broker.rack=a=b"]).settings["broker.rack"] == "a=b"


def test_a_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    assert refusal(file=tmp_path / "none") == f"{tmp_path / 'none'}: No such file or directory"
    assert refusal(file=tmp_path) == f"{tmp_path}: Is a directory"


def test_a_file_too_large_for_settings_is_not_read_completely(tmp_path: Path) -> None:
    file = tmp_path / "large"
    with file.open("wb") as stream:
        stream.truncate(FILE_SIZE_MAX + 1)
    assert "not a properties file" in refusal(file=file)


def test_a_malformed_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = properties(tmp_path, "a=\\u1")
    assert refusal(file=file).startswith(f"{file}: line 1: ")


def test_a_file_is_decoded_as_iso_8859_1_as_in_kafka(tmp_path: Path) -> None:
    file = properties(tmp_path, "broker.rack=\xe9\\u20ac")
    assert load_settings(file, {}, []).settings["broker.rack"] == "é€"


def test_invalid_listeners_are_rejected_before_anything_starts() -> None:
    assert refusal("listeners=SSL://:9093").startswith("listener SSL: it has no key: set ssl.keystore.location")


@pytest.mark.parametrize(("told", "warned"), [("", 0), (RACK_AWARE, 0), ("org.example.OwnSelector", 1)])
def test_an_unknown_replica_selector_is_logged(told: str, warned: int) -> None:
    warnings = load_settings(None, {}, [f"replica.selector.class={told}"]).warnings
    assert len([warning for warning in warnings if "consumers read from the leader" in warning]) == warned
