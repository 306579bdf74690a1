"""What docs/docker.md has its reader write: settings without warnings, and the calls that conformance/image makes."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml

from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.configuration import load_settings
from minibroker.broker.network.http_server import DOWN, UP
from tests.clients.ports import free_ports
from tests.docker.scripts import NEEDS_LINUX, announced, running, unpacked
from tests.running import PATIENCE_S
from tests.test_readme import FENCED

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "docker.md").read_text()
PROGRAMS = ROOT / "conformance" / "image" / "programs"
SUFFIXES = {"java": "java", "go": "go", "javascript": "js", "python": "py"}
NAME = "minibroker:8.0.0"


def blocks(kind: str) -> list[str]:
    return [found["text"] for found in FENCED.finditer(TEXT) if found["kind"] == kind]


def advertised(variables: dict[str, Any]) -> dict[str, int]:
    """Return port by host that clients are told, as the image would read the variables."""
    if "KAFKA_LISTENERS" not in variables:
        variables["KAFKA_LISTENERS"] = re.sub("://[^:,]*:", "://0.0.0.0:", variables["KAFKA_ADVERTISED_LISTENERS"])
    loaded = load_settings(None, variables, [], kafka_variables=True)
    assert loaded.warnings == ()
    return {listener.advertised_host: listener.advertised_port for listener in make_broker_listeners(loaded.settings)}


def test_programs_in_the_compose_file_connect_to_the_advertised_address() -> None:
    services = yaml.safe_load(blocks("yaml")[0])["services"]
    kafka = services["kafka"]
    assert kafka["image"] == NAME
    assert kafka["ports"] == ["9092:9092"]
    host, port = services["application"]["environment"]["BOOTSTRAP_SERVERS"].split(":")
    assert advertised(kafka["environment"]) == {"localhost": 9092, host: int(port)}


@contextmanager
def on_free_ports(directory: Path, variables: dict[str, str]) -> Iterator[Callable[[str], str]]:
    """Run the image's script with an example's variables until the block ends; a function moves ports of the example.

    They are ports that are free here, and each host is this machine.
    """
    ports = sorted({port for value in variables.values() for port in re.findall(r"(?<=[: ])\d{4,5}\b", value)})
    first = free_ports(len(ports))
    moved = {port: str(first + number) for number, port in enumerate(ports)}

    def here(text: str) -> str:
        return re.sub(r"(?<=[: ])\d{4,5}\b", lambda found: moved[found[0]], text)

    with running(unpacked(directory), {name: here(value) for name, value in variables.items()}):
        yield lambda url: here(re.sub("//[^:]+:", "//127.0.0.1:", url))


def status(url: str, token: str = "") -> int:
    """Return the status of the answer."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@NEEDS_LINUX
def test_control_api_explorer_and_registry_respond_at_the_addresses_in_the_compose_file(tmp_path: Path) -> None:
    services = yaml.safe_load(blocks("yaml")[1])["services"]
    variables, application = services["kafka"]["environment"], services["application"]["environment"]
    assert set(services["kafka"]["ports"]) == {f"{port}:{port}" for port in (8081, 8082, 9092)}
    (explorer,) = set(re.findall(r"`(http://\S+/explorer/)`", TEXT))
    with on_free_ports(tmp_path, variables) as here:
        assert status(here(application["SCHEMA_REGISTRY_URL"]) + "/subjects") == 200
        control = here(application["CONTROL_URL"]) + "/v1/clock"
        assert (status(control, application["CONTROL_TOKEN"]), status(control)) == (200, 401)
        assert status(here(explorer)) == 200


@NEEDS_LINUX
def test_the_services_of_the_compose_file_respond_at_the_documented_addresses(tmp_path: Path) -> None:
    text = (ROOT / "docker" / "compose.yaml").read_text()
    (service,) = yaml.safe_load(text)["services"].values()
    variables = service["environment"]
    registry, explorer = re.findall(r"(?:registry|explorer) +(http://localhost\S+)", text)
    assert f"`{registry}`" in TEXT and f"`{explorer}`" in TEXT and f"`{variables['MINIBROKER_CONTROL_TOKEN']}`" in TEXT
    with on_free_ports(tmp_path, variables) as here:
        assert status(here(registry) + "/subjects") == 200
        assert status(here(explorer)) == 200
        for url in re.findall(r"http://localhost\S+/ready", text):
            assert (status(here(url)), status(here(url.replace("ready", "health")))) == (200, 200)
        control = here("http://minibroker:8082/v1/clock")
        assert (status(control, variables["MINIBROKER_CONTROL_TOKEN"]), status(control)) == (200, 401)


def test_the_documented_texts_of_probes_are_those_of_the_server() -> None:
    assert f"`{UP.decode().strip()}`" in TEXT and f"`{DOWN}`" in TEXT


@NEEDS_LINUX
def test_kubernetes_probes_are_answered(tmp_path: Path) -> None:
    pod, service = yaml.safe_load_all(blocks("yaml")[2])
    (container,) = pod["spec"]["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert container["image"] == NAME and not pod["spec"]["enableServiceLinks"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"] and service["metadata"]["name"] == "kafka"
    assert [each["port"] for each in service["spec"]["ports"]] == [ports["kafka"]]
    with on_free_ports(tmp_path, variables) as here:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = container[probe]["httpGet"]
            assert status(here(f"http://kafka:{ports[asked['port']]}") + asked["path"]) == 200, probe


@NEEDS_LINUX
def test_the_documented_options_are_accepted(tmp_path: Path) -> None:
    (options,) = re.findall(r"such as `(--[^`]+)` \|", TEXT)
    advertised = f"PLAINTEXT://localhost:{free_ports(3)}"
    with running(
        unpacked(tmp_path), {"MINIBROKER_OPTIONS": options, "KAFKA_ADVERTISED_LISTENERS": advertised}
    ) as lines:
        assert announced(lines).count("localhost:") == 3


def test_jobs_connect_to_the_advertised_addresses_of_their_services() -> None:
    actions, gitlab = (yaml.safe_load(block) for block in blocks("yaml")[3:5])
    job = actions["jobs"]["test"]
    assert job["services"]["kafka"]["ports"] == ["9092:9092"]
    assert job["steps"][0]["env"]["BOOTSTRAP_SERVERS"] == "localhost:9092"
    (service,) = gitlab["test"]["services"]
    host, port = gitlab["test"]["variables"]["BOOTSTRAP_SERVERS"].split(":")
    assert advertised(service["variables"]) == {service["alias"]: int(port)} == {host: int(port)}


def test_action_gitlab_template_and_devcontainer_feature_have_the_documented_inputs() -> None:
    action, gitlab = (yaml.safe_load(block) for block in blocks("yaml")[5:])
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    (given,) = (step["with"] for step in action["steps"] if "minibroker" in step.get("uses", ""))
    assert set(given) <= set(inputs)
    assert load_settings(None, {}, given["settings"].splitlines()).warnings == ()
    template = yaml.safe_load((ROOT / gitlab["include"][0]["file"]).read_text())
    assert set(gitlab["test"]["variables"]) <= set(template[gitlab["test"]["extends"]]["variables"])
    (features,) = (json.loads(block)["features"] for block in blocks("json"))
    feature = json.loads((ROOT / "integrations/devcontainer/minibroker/devcontainer-feature.json").read_text())
    assert set(features[f"./{feature['id']}"]) <= set(feature["options"])


@pytest.mark.parametrize("kind", SUFFIXES)
def test_the_documented_testcontainers_calls_are_tested(kind: str) -> None:
    programs = [
        file.read_text()
        for file in PROGRAMS.rglob(f"*.{SUFFIXES[kind]}")
        if "target" not in file.parts and "node_modules" not in file.parts
    ]
    assert all(f'"{NAME}"' in each for each in programs)
    source = "".join(programs).replace("IMAGE.", f'DockerImageName.parse("{NAME}").')
    source = source.replace("(kind)", '("apache/kafka")')
    for block in blocks(kind):
        assert " ".join(block.split()) in " ".join(source.split())


def test_documented_variables_and_files_are_those_of_the_scripts() -> None:
    launch = (ROOT / "docker/root/etc/kafka/docker/launch").read_text()
    table = TEXT.split("\n## Variables\n")[1].split("\n\n")[1]
    for name in re.findall(r"`([A-Z_]+)`", table):
        stem = re.sub("KEYSTORE|TRUSTSTORE|(?<=SSL_)KEY", "*", name)
        known = {"KAFKA_SSL_*_FILENAME": "KAFKA_SSL_${store}_FILENAME", "KAFKA_SSL_*_CREDENTIALS": "SSL_${secret}_CRED"}
        assert known.get(stem, name) in launch or name == "MINIBROKER_CONTROL_TOKEN", name
    for path in ("/mnt/shared/config/server.properties", "/var/lib/kafka/data", "/etc/kafka/secrets"):
        assert path in launch and f"`{path}`" in TEXT
