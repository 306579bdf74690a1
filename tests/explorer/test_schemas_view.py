"""Schemas of the explorer: subjects and versions as the registry has them, and who refers to whom."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.testing import Broker
from tests.explorer.asking import ask

COUNTRY = {"type": "enum", "name": "Country", "symbols": ["AT", "CH"]}
USER = {"type": "record", "name": "User", "fields": [{"name": "country", "type": "Country"}]}
PROTO = 'syntax = "proto3";\n\nmessage Order {\n  int32 id = 1;\n}\n'


@pytest.fixture(scope="module")
def served() -> Iterator[Broker]:
    with Broker(explorer=True, registry=True) as broker:
        yield broker


def registered(broker: Broker) -> None:
    broker.registry.register("countries", COUNTRY)
    broker.registry.register("users-value", USER, references=[("Country", "countries", 1)])
    broker.registry.register("orders-value", PROTO, "PROTOBUF")
    broker.registry.set_compatibility("FULL", "users-value")


def version(broker: Broker, subject: str, number: int = 1) -> Any:
    return ask(broker, f"schemas/version?subject={subject}&version={number}")


def test_subjects_are_listed_with_their_effective_compatibility_levels(explored: Broker) -> None:
    registered(explored)
    listed = ask(explored, "schemas")
    assert (listed["level"], listed["mode"], listed["more"]) == ("BACKWARD", "READWRITE", 0)
    assert [(each["name"], each["kind"], each["count"], each["level"]) for each in listed["subjects"]] == [
        ("countries", "AVRO", 1, "BACKWARD"),
        ("orders-value", "PROTOBUF", 1, "BACKWARD"),
        ("users-value", "AVRO", 1, "FULL"),
    ]


def test_a_subject_is_shown_with_its_versions_and_topic(explored: Broker) -> None:
    registered(explored)
    explored.create_topic("users")
    changed = COUNTRY | {"symbols": ["AT", "CH", "LI"]}
    explored.registry.register("countries", changed)
    found = ask(explored, "schemas/subject?name=countries")
    assert [(each["version"], each["id"], each["referred_by"]) for each in found["versions"]] == [(2, 4, 0), (1, 1, 1)]
    assert (found["topic"], found["has_own_level"], found["mode"]) == (None, False, "READWRITE")
    users = ask(explored, "schemas/subject?name=users-value")
    assert (users["topic"], users["level"], users["has_own_level"]) == ("users", "FULL", True)


def test_a_version_is_shown_with_its_text_and_references(explored: Broker) -> None:
    registered(explored)
    users = version(explored, "users-value")
    assert users["references"] == [["Country", "countries", 1]] and users["referrers"] == []
    assert json.loads(users["text"]) == USER and users["text"].count("\n") > 3
    assert version(explored, "countries")["referrers"] == [["users-value", 1]]
    assert version(explored, "orders-value", -1)["text"] == PROTO


def test_deleted_versions_are_marked(explored: Broker) -> None:
    registered(explored)
    delete = f"{explored.registry_url}/subjects/orders-value"
    status(delete, "DELETE")
    (subject,) = (each for each in ask(explored, "schemas")["subjects"] if each["name"] == "orders-value")
    assert (subject["count"], subject["latest"]) == (0, None)
    assert version(explored, "orders-value")["deleted"]


def test_a_schema_is_found_by_the_id_in_a_record(explored: Broker) -> None:
    registered(explored)
    explored.registry.register("copies-value", COUNTRY)
    guid = version(explored, "countries")["guid"]
    first = {"subject": "countries", "version": 1}
    assert ask(explored, "schemas/named?schema=1") == first == ask(explored, f"schemas/named?schema={guid}")
    assert ask(explored, "schemas/named?schema=1&subject=copies-value")["subject"] == "copies-value"
    assert ask(explored, "schemas/named?schema=77") == (404, "the registry has no schema 77")
    assert ask(explored, "schemas/named?schema=x") == (404, "the registry has no schema x")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("subject?name=none", "the registry has no subject none"),
        ("version?subject=countries&version=7", "the registry has no version 7 of countries"),
    ],
)
def test_a_missing_schema_is_reported(explored: Broker, path: str, message: str) -> None:
    registered(explored)
    assert ask(explored, f"schemas/{path}") == (404, message)


def test_the_schemas_view_requires_a_registry(explored: Broker) -> None:
    assert "schemas" in ask(explored, "about")["views"]
    with Broker(explorer=True) as broker:
        assert "schemas" not in ask(broker, "about")["views"]
        assert ask(broker, "schemas")[0] == 404


def status(url: str, method: str) -> int:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=30) as answer:
        return int(answer.status)
