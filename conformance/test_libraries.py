"""The command line and the HTTP control beside the oldest versions of their libraries, and beside newer ones.

What pip fetches goes into a folder of the test's own, which stands before the installed packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.running import running_broker
from tests.testing.control.test_control import Control

pytestmark = pytest.mark.minibroker_only
ROOT = Path(__file__).parent.parent
COMMANDS = """
import click, sys
from importlib.metadata import version
from minibroker.cli.main import main
def all_of(command, names):
    yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from all_of(command.get_command(context, name), [*names, name])
for arguments in (*([*names, "--help"] for names in all_of(main, [])), ["formats"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, arguments
print("click", version("click"), "rich", version("rich"))
"""


def oldest(package: str) -> str:
    """The version from which on the metadata allows a package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    dependencies = [*project["dependencies"], *project["optional-dependencies"]["control"]]
    (bound,) = (each.partition(">=")[2] for each in dependencies if each.startswith(f"{package}>="))
    return str(bound)


def fetched(directory: Path, *packages: str) -> Path:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(directory), *packages]
    subprocess.run(command, check=True, capture_output=True)
    return directory


@pytest.mark.parametrize("click", [f"click=={oldest('click')}.*", "click==8.3.*", "click"])
@pytest.mark.parametrize("rich", [f"rich=={oldest('rich')}.*", "rich"])
def test_the_help_of_every_command_works_with_other_versions_of_click_and_rich(
    tmp_path: Path, click: str, rich: str
) -> None:
    libraries = fetched(tmp_path, click, rich)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(libraries), str(ROOT)))}
    result = subprocess.run([sys.executable, "-c", COMMANDS], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr[-2000:]
    found = result.stdout.splitlines()[-1].split()
    for package, wanted in (("click", click), ("rich", rich)):
        version = found[found.index(package) + 1]
        assert version.startswith(wanted.partition("==")[2].removesuffix("*")), "another one was imported"
    assert "Usage: " in result.stdout and "without attributes" in result.stdout


def test_the_control_api_works_with_the_oldest_supported_libraries(tmp_path: Path) -> None:
    ours = [f"{package}=={oldest(package)}.*" for package in ("msgspec", "h11")]
    libraries = fetched(tmp_path / "libraries", *ours)
    path = os.pathsep.join((str(libraries), str(ROOT)))
    with running_broker(tmp_path, options=("--control", "0"), env={"PYTHONPATH": path}) as broker:
        control = Control(broker)
        control.post("/v1/topics/orders/records", {"values": ["tea"]})
        assert control.get("/openapi.json")["info"]["title"]
        control.post("/v1/reset", status=204)
        assert control.get("/v1/topics/orders/records") == []
