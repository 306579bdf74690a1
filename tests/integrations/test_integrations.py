"""The scripts with which CI jobs and development containers start a broker, run as those run them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from minibroker.broker.configs.listeners import make_broker_listeners
from minibroker.broker.configuration import load_settings
from tests.docker.scripts import NEEDS_LINUX, environment
from tests.running import PATIENCE_S

ROOT = Path(__file__).parents[2]
START = ROOT / "integrations" / "start"
FEATURE = ROOT / "integrations" / "devcontainer" / "minibroker"
# Makes a venv whose pip notes what it is to install, and whose minibroker is this one.
PYTHON = """#!/bin/sh -e
mkdir -p $3/bin
printf '#!/bin/sh\\necho "$@" > {noted}\\n' > $3/bin/python
ln -s {minibroker} $3/bin/minibroker
chmod 755 $3/bin/python
"""


@contextlib.contextmanager
def done(
    command: list[str], directory: Path, variables: Mapping[str, str]
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run a command to its end, and end what it left behind with the block."""
    output = directory / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=directory, env=variables, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        status = process.wait(PATIENCE_S)
        yield subprocess.CompletedProcess(command, status, output.read_text())
    finally:
        with contextlib.suppress(ProcessLookupError):  # nothing was left
            os.killpg(process.pid, signal.SIGKILL)


def check_listens(address: str) -> None:
    host, _, port = address.strip().rpartition(":")
    socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Those of a job of GitHub Actions in which minibroker is installed."""
    job = {"RUNNER_TEMP": tmp_path, "GITHUB_OUTPUT": tmp_path / "outputs", "GITHUB_ENV": tmp_path / "environment"}
    return environment({name: str(path) for name, path in job.items()})


def action_step(**inputs: str) -> tuple[list[str], dict[str, str]]:
    """The command of the action's step, and its variables with these inputs."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    texts = {f"inputs.{name}": each["default"] for name, each in action["inputs"].items()}
    texts |= {f"inputs.{name}": text for name, text in inputs.items()} | {"github.action_path": str(ROOT)}
    filled = {}
    for name, text in step["env"].items():
        for expression, value in texts.items():
            text = text.replace(f"${{{{ {expression} }}}}", value)
        filled[name] = text
    assert step["shell"] == "bash"
    return ["bash", "-eo", "pipefail", "-c", step["run"]], filled | {"GITHUB_ACTION_PATH": str(ROOT)}


def test_the_action_starts_a_broker_and_outputs_its_address(tmp_path: Path, variables: dict[str, str]) -> None:
    command, inputs = action_step(port="0", settings="num.partitions=3\nnode.id=7\n", options="--log-level\ndebug")
    with done(command, tmp_path, variables | inputs) as run:
        assert run.returncode == 0, run.stdout
        outputs = dict(line.split("=", 1) for line in (tmp_path / "outputs").read_text().splitlines())
        address = outputs["bootstrap-server"]
        check_listens(address)
        assert run.stdout == f"bootstrap-server={address}\n"
        assert (tmp_path / "environment").read_text() == f"BOOTSTRAP_SERVERS={address}\n"
        assert f"minibroker listens on {address}" in Path(outputs["log"]).read_text()
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert all(f"steps.start.outputs.{name} " in each["value"] for name, each in action["outputs"].items())
    assert set(action["outputs"]) <= set(outputs)


def test_an_action_whose_broker_does_not_start_fails_with_its_log(tmp_path: Path, variables: dict[str, str]) -> None:
    command, inputs = action_step(settings="num.partitions=none")
    with done(command, tmp_path, variables | inputs) as run:
        assert run.returncode == 1
        assert "--set num.partitions=none: Invalid value none" in run.stdout


def test_the_action_installs_a_missing_package(tmp_path: Path, variables: dict[str, str]) -> None:
    python, noted = tmp_path / "python", tmp_path / "noted"
    python.write_text(PYTHON.format(noted=noted, minibroker=Path(sys.executable).with_name("minibroker")))
    python.chmod(0o755)
    bare = variables | {"PATH": "/usr/bin:/bin", "BROKER_PYTHON": str(python), "BROKER_PACKAGE": "some[extra]"}
    with done([str(START), "--set", "listeners=PLAINTEXT://127.0.0.1:0"], tmp_path, bare) as run:
        assert run.returncode == 0, run.stdout
        assert noted.read_text() == "-m pip install --quiet some[extra]\n"
        check_listens((tmp_path / "minibroker" / "ready").read_text())


def gitlab_jobs() -> dict[str, Any]:
    jobs: dict[str, Any] = yaml.safe_load((ROOT / "integrations" / "gitlab.yml").read_text())
    return jobs


def test_a_job_of_the_gitlab_template_has_a_running_broker_and_keeps_its_log(tmp_path: Path) -> None:
    job = gitlab_jobs()[".minibroker"]
    ready = tmp_path / "ready"
    script = "\n".join([*job["before_script"], f"cat {ready}"]).replace("/tmp/minibroker-ready", str(ready))
    variables = environment(job["variables"] | {"BOOTSTRAP_SERVERS": "127.0.0.1:0"})
    with done(["bash", "-eo", "pipefail", "-c", script], tmp_path, variables) as run:
        assert run.returncode == 0, run.stdout
        check_listens(run.stdout.splitlines()[-1])
    assert job["artifacts"]["paths"] == ["minibroker.log"] and (tmp_path / "minibroker.log").exists()


def test_a_gitlab_job_installs_a_missing_package(tmp_path: Path) -> None:
    job = gitlab_jobs()[".minibroker"]
    programs, noted = tmp_path / "programs", tmp_path / "noted"
    programs.mkdir()
    python = programs / "python3"
    python.write_text(PYTHON.format(noted=noted, minibroker=Path(sys.executable).with_name("minibroker")))
    python.chmod(0o755)
    install, *_ = job["before_script"]
    variables = {"PATH": f"{programs}:/usr/bin:/bin", "BROKER_PACKAGE": "some[extra]"}
    script = f"{install}\nminibroker --version && command -v python3"
    with done(["bash", "-eo", "pipefail", "-c", script], tmp_path, variables) as run:
        assert run.returncode == 0 and run.stdout.splitlines()[-1] == str(python), run.stdout
        assert noted.read_text() == "-m pip install --quiet some[extra]\n"


def test_a_gitlab_service_advertises_the_address_of_its_job() -> None:
    job = gitlab_jobs()[".minibroker-service"]
    (service,) = job["services"]
    variables = service["variables"] | {"KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092"}
    (listener,) = make_broker_listeners(load_settings(None, variables, [], kafka_variables=True).settings)
    assert f"{listener.advertised_host}:{listener.advertised_port}" == job["variables"]["BOOTSTRAP_SERVERS"]
    assert service["alias"] == listener.advertised_host


@NEEDS_LINUX
def test_a_development_container_starts_a_broker_beside_its_command(tmp_path: Path) -> None:
    feature = json.loads((FEATURE / "devcontainer-feature.json").read_text())
    options = {name.upper(): option["default"] for name, option in feature["options"].items()}
    home = tmp_path / "feature"
    settings = {"SETTINGS": "listeners=PLAINTEXT://127.0.0.1:0 num.partitions=2", "HOME_OF_FEATURE": str(home)}
    variables = environment(options | settings | {"TMPDIR": str(tmp_path)})
    with done([str(FEATURE / "install.sh")], tmp_path, variables) as run:
        assert (run.returncode, run.stdout) == (0, "")
    assert feature["entrypoint"] == "/usr/local/share/minibroker/start"
    ready = tmp_path / "minibroker" / "ready"
    with done([str(home / "start"), "sh", "-c", f"until cat {ready}; do sleep 0.1; done"], tmp_path, variables) as run:
        assert run.returncode == 0
        check_listens(run.stdout.splitlines()[-1])


def test_the_development_container_names_the_default_address() -> None:
    feature = json.loads((FEATURE / "devcontainer-feature.json").read_text())
    (listener,) = make_broker_listeners(load_settings(None, {}, []).settings)
    assert feature["containerEnv"] == {"BOOTSTRAP_SERVERS": f"{listener.host}:{listener.port}"}
