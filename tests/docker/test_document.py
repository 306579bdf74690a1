"""What docs/docker.md has its reader write: settings without warnings, and the calls that conformance/image makes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from minibroker.broker.configs.listeners import broker_listeners
from minibroker.broker.configuration import load_settings
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
    return {listener.advertised_host: listener.advertised_port for listener in broker_listeners(loaded.settings)}


def test_programs_of_the_compose_file_connect_to_what_is_advertised() -> None:
    services = yaml.safe_load(blocks("yaml")[0])["services"]
    kafka = services["kafka"]
    assert kafka["image"] == NAME
    assert kafka["ports"] == ["9092:9092"]
    host, port = services["application"]["environment"]["BOOTSTRAP_SERVERS"].split(":")
    assert advertised(kafka["environment"]) == {"localhost": 9092, host: int(port)}


def test_jobs_connect_to_what_their_services_advertise() -> None:
    actions, gitlab = (yaml.safe_load(block) for block in blocks("yaml")[1:3])
    job = actions["jobs"]["test"]
    assert job["services"]["kafka"]["ports"] == ["9092:9092"]
    assert job["steps"][0]["env"]["BOOTSTRAP_SERVERS"] == "localhost:9092"
    (service,) = gitlab["test"]["services"]
    host, port = gitlab["test"]["variables"]["BOOTSTRAP_SERVERS"].split(":")
    assert advertised(service["variables"]) == {service["alias"]: int(port)} == {host: int(port)}


def test_the_action_the_template_and_the_feature_have_what_is_given_to_them() -> None:
    action, gitlab = (yaml.safe_load(block) for block in blocks("yaml")[3:])
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
def test_the_calls_of_testcontainers_are_those_that_are_tested(kind: str) -> None:
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


def test_the_names_of_variables_and_files_are_those_of_the_scripts() -> None:
    launch = (ROOT / "docker/root/etc/kafka/docker/launch").read_text()
    table = TEXT.split("\n## Variables\n")[1].split("\n\n")[1]
    for name in re.findall(r"`([A-Z_]+)`", table):
        stem = re.sub("KEYSTORE|TRUSTSTORE|(?<=SSL_)KEY", "*", name)
        known = {"KAFKA_SSL_*_FILENAME": "KAFKA_SSL_${store}_FILENAME", "KAFKA_SSL_*_CREDENTIALS": "SSL_${secret}_CRED"}
        assert known.get(stem, name) in launch or name == "MINIBROKER_CONTROL_TOKEN", name
    for path in ("/mnt/shared/config/server.properties", "/var/lib/kafka/data", "/etc/kafka/secrets"):
        assert path in launch and f"`{path}`" in TEXT
