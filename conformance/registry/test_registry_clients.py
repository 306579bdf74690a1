"""Clients of registries in other languages find in minibroker's what they expect of Confluent's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from conformance import builds
from conformance.clients import PATIENCE_S
from minibroker.testing import Broker


@pytest.fixture
def registry() -> Iterator[str]:
    """Return the URL of an empty registry."""
    with Broker(registry=True) as broker:
        yield broker.registry_url


def said_by(language: str, registry: str) -> list[str]:
    """Return the lines that a program prints."""
    run = subprocess.run(
        [*builds.registry_client(language), registry], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_kafkajs_registers_encodes_and_decodes(registry: str) -> None:
    assert [json.loads(line) for line in said_by("node", registry)] == [
        [1, 1, {"name": "ann"}],
        [2, 2, {"a": 1}],
        [3, 3, {"cents": 5}],
        ["ResponseError", 409],
        ["ResponseError", 404],
    ]


def test_franz_go_asks_all_that_it_can(registry: str) -> None:
    assert said_by("go", registry) == [
        "created go-value 1 1",
        "found 1",
        'text {"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
        "compatible false 4",
        "refused true",
        "level go-value FULL_TRANSITIVE <nil>",
        "mode other READONLY <nil>",
        "subjects [go-value] 1",
        "deleted [1]",
        "deleted [1]",
    ]
