"""Modes, as tests of Confluent's registry expect them."""

from __future__ import annotations

import pytest

from tests.registry.asking import Asking, record

A, READONLY = record("A"), {"mode": "READONLY"}


def test_readonly_override_applies_to_subjects_with_a_mode_of_their_own(registry: Asking) -> None:
    registry.put("/mode", {"mode": "READONLY_OVERRIDE"})
    registry.put("/mode/s", {"mode": "READWRITE"})
    for subject in ("s", "other"):
        assert registry.get(f"/mode/{subject}").body == {"mode": "READONLY_OVERRIDE"}
        assert registry.register(subject, A).code == 42205


def test_setting_a_mode_to_null_removes_it(registry: Asking) -> None:
    registry.put("/mode", READONLY)
    assert registry.put("/mode", {"mode": None})[:2] == (200, {"mode": None})
    assert registry.get("/mode").body == {"mode": "READWRITE"}
    assert registry.put("/mode", {}).code == 42204


def test_the_mode_of_all_contexts_can_be_set(registry: Asking) -> None:
    registry.put("/mode/:.__GLOBAL:", READONLY)
    assert registry.get("/mode?defaultToGlobal=true").body == READONLY
    assert registry.register("s", A).code == registry.register(":.c:s", A).code == 42205


def test_the_default_context_applies_to_subjects_without_a_context(registry: Asking) -> None:
    registry.put("/config/:.:", {"compatibility": "FULL"})
    assert registry.get("/config").body == {"compatibilityLevel": "FULL"}
    registry.put("/mode/:.:", READONLY)
    assert registry.get("/mode").body == registry.delete("/mode/:.:").body == READONLY
    assert registry.get("/mode").body == {"mode": "READWRITE"}


@pytest.mark.parametrize(("scope", "inside"), [(":.c:", [":.c:a", ":.c:b"]), ("", ["a", "b"])])
def test_removing_the_mode_of_a_context_removes_those_of_its_subjects(
    registry: Asking, scope: str, inside: list[str]
) -> None:
    path = f"/mode/{scope}".rstrip("/")
    for name in (*inside, ":.other:", ":.other:a"):
        registry.put(f"/mode/{name}", READONLY)
    registry.put(path, READONLY)
    assert registry.delete(path).body == READONLY
    assert [registry.get(f"/mode/{name}").status for name in inside] == [200, 200]
    assert registry.delete(f"{path}?recursive=true").status == 200
    assert [registry.get(f"/mode/{name}").code for name in inside] == [40409, 40409]
    assert [registry.get(f"/mode/{name}").body for name in (":.other:", ":.other:a")] == [READONLY, READONLY]


def test_deleting_the_mode_of_a_subject_without_one_is_an_error(registry: Asking) -> None:
    assert registry.delete("/mode/s").code == 40401
    assert registry.delete("/mode/:.c:?recursive=true")[:2] == (200, {"mode": None})
