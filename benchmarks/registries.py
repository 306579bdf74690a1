"""What the schema registry takes for a schema beside 10,000 others, over one HTTP connection."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from http.client import HTTPConnection
from statistics import median
from typing import Any

import servers
from machine import cpu_seconds
from programs import Failed, Unavailable
from report import Case, Column, Measure, Sample, Section
from servers import Target

SCHEMAS = 10_000
ASKED = 1_000
JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def sections() -> list[Section]:
    columns = (
        Column("new_ms", "a new one, ms"),
        Column("known_ms", "a known one, ms"),
        Column("found_ms", "by id, ms"),
        Column("new_cpu_ms", "server CPU: new, ms"),
        Column("known_cpu_ms", "known, ms"),
        Column("found_cpu_ms", "by id, ms"),
    )
    makers = {"AVRO": _avro, "JSON": _json_schema, "PROTOBUF": _protobuf}
    targets = {"new_ms": 1.0, "known_ms": 1.0, "found_ms": 1.0}
    cases = [Case(name, _measure(name, make), targets) for name, make in makers.items()]
    title = f"Schema registry: a schema of five fields beside {SCHEMAS:,}, each of a subject of its own; median"
    return [Section("registry", title, columns, cases)]


def _avro(number: int) -> str:
    fields = [{"name": f"field{number}_{index}", "type": "string"} for index in range(5)]
    return json.dumps({"type": "record", "name": f"Record{number}", "fields": fields})


def _json_schema(number: int) -> str:
    properties = {f"field{number}_{index}": {"type": "string"} for index in range(5)}
    return json.dumps({"type": "object", "title": f"Record{number}", "properties": properties})


def _protobuf(number: int) -> str:
    fields = " ".join(f"string field{number}_{index} = {index + 1};" for index in range(5))
    return f'syntax = "proto3"; message Record{number} {{ {fields} }}'


def _measure(name: str, make: Callable[[int], str]) -> Measure:
    def measure(target: Target) -> Sample:
        if target.name != "minibroker":
            raise Unavailable("it has no schema registry")
        port = servers.free_port()
        registry = ("--registry", f"127.0.0.1:{port}")
        with (
            servers.data_directory() as folder,
            servers.minibroker_on(folder, options=registry) as server,
            closing(HTTPConnection("127.0.0.1", port, timeout=60)) as client,
        ):
            bodies = [json.dumps({"schemaType": name, "schema": make(number)}) for number in range(SCHEMAS + ASKED)]
            for number in range(SCHEMAS):
                _ask(client, "POST", f"/subjects/subject{number}/versions", bodies[number])
            newest = range(SCHEMAS, SCHEMAS + ASKED)
            registering = [("POST", f"/subjects/subject{number}/versions", bodies[number]) for number in newest]
            asking = [("GET", f"/schemas/ids/{number + 1}", None) for number in newest]
            sample = {}
            for key, requests in (("new", registering), ("known", registering), ("found", asking)):
                before = cpu_seconds(server.pid)
                sample[f"{key}_ms"] = median(_timed_ms(client, requests))
                sample[f"{key}_cpu_ms"] = (cpu_seconds(server.pid) - before) / ASKED * 1e3
            return sample

    return measure


def _timed_ms(client: HTTPConnection, requests: Sequence[tuple[str, str, str | None]]) -> list[float]:
    taken = []
    for request in requests:
        began = time.perf_counter()
        _ask(client, *request)
        taken.append((time.perf_counter() - began) * 1e3)
    return taken


def _ask(client: HTTPConnection, method: str, path: str, body: str | None) -> Any:
    """Return what the registry answers. Raises Failed."""
    client.request(method, path, body, JSON)
    answer = client.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise Failed(f"{method} {path}: {answer.status} {text[:200]!r}")
    return json.loads(text)
