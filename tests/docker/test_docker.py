"""What docker/ copies, runs and exposes exists and matches the settings; no container engine is needed to see it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.configuration import load_settings
from tests.docker.scripts import FILES

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE = ROOT / "docker" / "compose.yaml"


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of this name, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [match[1].strip() for match in re.finditer(rf"^{name} (.*)$", joined, re.MULTILINE)]


def copied() -> list[str]:
    """What is copied from here, and not from another stage."""
    copies = [shlex.split(copy)[:-1] for copy in instructions("COPY")]
    return [source for sources in copies for source in sources if not sources[0].startswith("--from")]


def service() -> dict[str, Any]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    (only,) = services.values()
    return only


def test_files_that_the_dockerfile_copies_exist_and_are_not_ignored() -> None:
    ignore = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert set(copied()) == sent
    assert all((ROOT / source).exists() for source in copied())


def test_the_dockerfile_copies_all_files_that_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = ["README.md", "hatch_build.py", *project["project"]["license-files"]]
    needed += project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for name in ["pyproject.toml", *needed]:
        assert any(fnmatch(name, source) or name.startswith(f"{source}/") for source in copied()), name


def test_the_image_has_a_supported_python_and_an_existing_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    arguments = dict(argument.split("=", 1) for argument in instructions("ARG"))
    python = re.fullmatch(r"3\.(\d+)", arguments["PYTHON"])
    assert python is not None and int(python[1]) >= int(project["requires-python"].removeprefix(">=3."))
    assert all(stage.startswith("python:${PYTHON}-alpine") for stage in instructions("FROM"))
    assert set(arguments["EXTRAS"].split(",")) <= project["optional-dependencies"].keys()


def test_the_image_runs_its_own_scripts_and_other_commands_directly() -> None:
    assert instructions("ENTRYPOINT") == []
    (command,), (check,) = instructions("CMD"), instructions("HEALTHCHECK")
    (program,), (checked,) = json.loads(command), json.loads(check.partition("CMD ")[2])
    for script in (program, checked):
        assert (FILES / script.lstrip("/")).stat().st_mode & 0o111 == 0o111, script


def test_the_image_runs_as_the_user_it_creates() -> None:
    (user,) = instructions("USER")
    assert user != "root"
    assert any(f"echo '{user}:x:1000:1000:" in run for run in instructions("RUN"))


def test_port_and_volume_are_those_of_the_default_settings() -> None:
    launch = (FILES / "etc/kafka/docker/launch").read_text()
    (port,), (volumes,) = instructions("EXPOSE"), instructions("VOLUME")
    assert f"KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:{port}\n" in launch
    assert "KAFKA_LOG_DIRS=/var/lib/kafka/data\n" in launch and "/var/lib/kafka/data" in json.loads(volumes)


def test_the_compose_service_builds_this_dockerfile() -> None:
    build = service()["build"]
    context = (COMPOSE.parent / build["context"]).resolve()
    assert context == ROOT
    assert context / build["dockerfile"] == DOCKERFILE


def test_each_published_port_is_the_advertised_one() -> None:
    settings = {name: text for name, text in service()["environment"].items() if name.startswith("KAFKA_")}
    loaded = load_settings(None, settings, [], kafka_variables=True)
    assert loaded.warnings == ()
    by_port = {listener.port: listener for listener in make_broker_listeners(loaded.settings)}
    for published in service()["ports"]:
        address, outer, inner = published.split(":")
        assert (address, outer) == ("127.0.0.1", inner)
        if f"0.0.0.0:{inner}" in service()["environment"]["MINIBROKER_OPTIONS"].split():
            continue  # the registry's, and the control's
        listener = by_port.pop(int(inner))
        assert (listener.advertised_host, listener.advertised_port) == ("localhost", int(outer))
    names = set(yaml.safe_load(COMPOSE.read_text())["services"])
    for listener in by_port.values():
        assert listener.advertised_host in names
        assert listener.advertised_port == listener.port


def test_the_compose_volume_contains_the_data() -> None:
    targets = [volume.split(":") for volume in service()["volumes"]]
    assert {target for _, target in targets} <= set(json.loads(instructions("VOLUME")[0]))
    assert {name for name, _ in targets} == set(yaml.safe_load(COMPOSE.read_text())["volumes"])
