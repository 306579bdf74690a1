"""Builds an image from its Dockerfile into directories, without a container engine.

The base image cannot be had here: this machine's system takes its place, with the interpreter of these tests as its
Python and an `apk` that only checks that a package's program is there. What the Dockerfile says is then done for real:
COPY copies, and RUN runs in a root of its own, an overlay of the directories. It needs root and runs in a mount
namespace, which `unshare --mount` makes.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

CONTEXT = Path(__file__).parents[2]
DOCKERFILE = CONTEXT / "docker" / "Dockerfile"
BASE_PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
PROGRAM_OF_PACKAGE = {"bash": "bash", "binutils": "strip"}


@dataclass
class Image:
    """The layers of an image, the upmost first, and what a container of it starts with."""

    layers: list[Path]
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    command: list[str] = field(default_factory=list)
    entrypoint: list[str] = field(default_factory=list)
    healthcheck: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)


def mounted(layers: list[Path], upper: Path) -> Path:
    """Mount a root of these layers in which all changes go to `upper`, and return it."""
    root, work = upper.with_name(f"{upper.name}.root"), upper.with_name(f"{upper.name}.work")
    for directory in (upper, root, work):
        directory.mkdir(parents=True, exist_ok=True)
    lower = ":".join([*map(str, layers), "/"])
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(root)], check=True)
    return root


def build(directory: Path, dockerfile: Path = DOCKERFILE) -> Image:
    """Do what the Dockerfile says, with the layers in memory below `directory`, and return its last stage."""
    # A layer must not lie inside of another one, as `/` is one.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(directory)], check=True)
    base = _base(directory / "base")
    outer: dict[str, str] = {}
    stages: dict[str, Image] = {}
    image = root = None
    for name, rest in instructions(dockerfile):
        if name == "FROM":
            words = shlex.split(rest)
            image = Image([directory / f"stage{len(stages)}", base], arguments=dict(outer))
            stages[words[2] if len(words) > 1 else ""] = image
            root = mounted(image.layers[1:], image.layers[0])
            subprocess.run(["mount", "--rbind", "/dev", f"{root}/dev"], check=True)
            subprocess.run(["mount", "--rbind", "/proc", f"{root}/proc"], check=True)
        elif image is None or root is None:
            assert name == "ARG", name
            key, _, value = rest.partition("=")
            outer[key] = value
        else:
            _do(name, rest, image, root, stages)
    assert image is not None
    return image


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    """Return the instructions, continued lines joined."""
    lines = [line for line in dockerfile.read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [(name, rest.strip()) for name, rest in pairs]


def _base(layer: Path) -> Path:
    root = mounted([], layer)
    (root / "root").chmod(0o755)  # where the interpreter may be
    library = sysconfig.get_path("stdlib")
    links = {"bin/python": os.path.realpath(sys.executable), "bin/python3": "python"}
    for name, target in (links | {f"lib/{os.path.basename(library)}": library}).items():
        link = root / "usr/local" / name
        shutil.rmtree(link, ignore_errors=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    checks = "".join(f"    {package}) command -v {program} ;;\n" for package, program in PROGRAM_OF_PACKAGE.items())
    apk = root / "sbin/apk"
    apk.write_text(
        f'#!/bin/sh -e\nfor word in "$@"; do case $word in\n{checks}    add | --*) ;;\n    *) exit 1 ;;\nesac; done\n'
    )
    apk.chmod(0o755)
    subprocess.run(["umount", str(root)], check=True)
    return layer


def _do(name: str, rest: str, image: Image, root: Path, stages: dict[str, Image]) -> None:
    match name:
        case "ARG":
            key, _, value = rest.partition("=")
            image.arguments[key] = value
        case "ENV":
            for pair in shlex.split(rest):
                key, _, value = pair.partition("=")
                image.environment[key] = _expanded(value, image.environment)
        case "WORKDIR":
            image.workdir = rest
            (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "COPY":
            _copy(shlex.split(rest), image, root, stages)
        case "RUN":
            _run(rest, image, root)
        case "USER":
            image.user = rest
        case "CMD":
            image.command = json.loads(rest)
        case "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        case "EXPOSE":
            image.ports = [f"{port}/tcp" for port in rest.split()]
        case "HEALTHCHECK":
            image.healthcheck = json.loads(rest.partition("CMD ")[2])
        case "VOLUME" | "STOPSIGNAL" | "LABEL":
            pass  # nothing that a root directory shows
        case _:
            raise AssertionError(f"{name} is not understood here")


def _copy(words: list[str], image: Image, root: Path, stages: dict[str, Image]) -> None:
    origin = CONTEXT
    if words[0].startswith("--from="):
        stage = stages[words.pop(0).removeprefix("--from=")]
        origin = stage.layers[0].with_name(f"{stage.layers[0].name}.root")
    *sources, target = words
    destination = root / os.path.join(image.workdir, target).lstrip("/")
    for source in (origin / source.lstrip("/") for source in sources):
        if source.is_dir():
            shutil.copytree(
                source,
                destination,
                symlinks=True,
                dirs_exist_ok=True,
                ignore=shutil.ignore_patterns("__pycache__") if origin == CONTEXT else None,
            )
        else:
            destination.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, destination)


def _run(command: str, image: Image, root: Path) -> None:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}  # proxies, indexes
    environment = {**outer, **image.environment, **image.arguments, "HOME": "/root"}
    inside = ["chroot", str(root), "/bin/sh", "-c", f"cd {image.workdir} && {command}"]
    done = subprocess.run(inside, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"RUN {command} failed:\n{done.stdout[-4000:]}")


def _expanded(value: str, environment: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: environment.get(match[1], ""), value)
