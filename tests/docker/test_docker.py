"""What docker/ copies, runs and exposes exists and matches the settings; no container engine is needed to see it."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from minibroker.broker.configs.configuration import load_settings
from minibroker.broker.network.listeners import Listener, broker_listeners
from minibroker.cli.main import main

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
COMPOSE = ROOT / "docker" / "compose.yaml"


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of this name, continued lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [match[1].strip() for match in re.finditer(rf"^{name} (.*)$", joined, re.MULTILINE)]


def copied() -> list[str]:
    return [source for copy in instructions("COPY") for source in shlex.split(copy)[:-1]]


def image_environment() -> dict[str, str]:
    pairs = (pair.partition("=") for env in instructions("ENV") for pair in shlex.split(env))
    return {name: value for name, _, value in pairs}


def service() -> dict[str, Any]:
    services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    (only,) = services.values()
    return only


def listeners(environment: dict[str, str]) -> tuple[Listener, ...]:
    loaded = load_settings(None, environment, [])
    assert loaded.warnings == ()
    return broker_listeners(loaded.settings)


def compose_environment() -> dict[str, str]:
    return {**image_environment(), **service()["environment"]}


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    ignore = (ROOT / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert set(copied()) == sent
    assert all((ROOT / source).exists() for source in copied())


def test_all_that_the_package_is_built_from_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = [project["project"]["readme"], *project["project"]["license-files"]]
    needed += project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for name in ["pyproject.toml", *needed, project["tool"]["hatch"]["version"]["path"]]:
        assert any(fnmatch(name, source) or name.startswith(f"{source}/") for source in copied()), name


def test_the_image_has_a_python_the_package_takes() -> None:
    (image,) = instructions("FROM")
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    python = re.fullmatch(r"python:3\.(\d+)-slim", image)
    assert python is not None and int(python[1]) >= int(required.removeprefix(">=3."))


def test_what_is_run_is_a_command_of_the_package() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entrypoint,), (command,) = instructions("ENTRYPOINT"), instructions("CMD")
    (program,), arguments = json.loads(entrypoint), json.loads(command)
    assert program in scripts
    context = main.make_context(program, arguments)
    assert main.resolve_command(context, arguments)[0] == "serve"


def test_the_image_listens_for_everyone_on_the_port_it_exposes() -> None:
    (listener,) = listeners(image_environment())
    assert instructions("EXPOSE") == [str(listener.port)]
    assert listener.host == "0.0.0.0"
    assert (listener.advertised_host, listener.advertised_port) == ("localhost", listener.port)


def test_the_image_keeps_its_data_in_the_volume() -> None:
    settings = load_settings(None, image_environment(), []).settings
    assert instructions("VOLUME") == list(settings.log_directories)


def test_the_image_runs_as_a_user_it_makes() -> None:
    (user,) = instructions("USER")
    assert user != "root"
    assert any(f"useradd --system --uid 10001 --no-create-home {user}" in run for run in instructions("RUN"))


def test_the_services_build_is_the_dockerfile_here() -> None:
    build = service()["build"]
    context = (COMPOSE.parent / build["context"]).resolve()
    assert context == ROOT
    assert context / build["dockerfile"] == DOCKERFILE


def test_each_published_port_is_the_one_advertised_to_this_machine() -> None:
    by_port = {listener.port: listener for listener in listeners(compose_environment())}
    for published in service()["ports"]:
        outer, inner = (int(port) for port in published.split(":"))
        listener = by_port.pop(inner)
        assert (listener.advertised_host, listener.advertised_port) == ("localhost", outer)
    names = set(yaml.safe_load(COMPOSE.read_text())["services"])
    for listener in by_port.values():
        assert listener.advertised_host in names
        assert listener.advertised_port == listener.port


def test_the_services_volume_is_where_the_data_is() -> None:
    targets = [volume.split(":") for volume in service()["volumes"]]
    assert [target for _, target in targets] == instructions("VOLUME")
    assert {name for name, _ in targets} == set(yaml.safe_load(COMPOSE.read_text())["volumes"])


def test_the_health_check_is_a_command_that_asks_a_listener() -> None:
    kind, program, *arguments = service()["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "minibroker")
    context = main.make_context(program, list(arguments))
    name, group, rest = main.resolve_command(context, list(arguments))
    assert name == "topics" and group is not None
    inner = group.make_context(name, rest, parent=context)
    assert inner.info_name == "topics"
    port = int(arguments[-1].rpartition(":")[2])
    assert port in {listener.port for listener in listeners(compose_environment())}


@pytest.mark.parametrize("variable", ["MINIBROKER_LOG_SEGMENT_BYTES", "MINIBROKER_ADVERTISED_LISTENERS"])
def test_the_variables_named_in_the_comments_are_settings(variable: str) -> None:
    assert variable in DOCKERFILE.read_text()
    value = {"MINIBROKER_LOG_SEGMENT_BYTES": "2000000", "MINIBROKER_ADVERTISED_LISTENERS": "PLAINTEXT://a:1"}[variable]
    assert load_settings(None, {variable: value}, []).warnings == ()
