"""The kits for other languages pass their own tests, by the tools of their languages, and can be published."""

from __future__ import annotations

import pytest

from conformance.projects import KITS, run

pytestmark = pytest.mark.minibroker_only


def test_the_kit_for_go_passes_its_own_tests() -> None:
    assert run(KITS / "go", "gofmt", "-l", ".") == ""
    run(KITS / "go", "go", "vet", "./...")
    run(KITS / "go", "go", "test", "-count=1", "./...")


def test_the_kit_for_go_is_a_module_without_others() -> None:
    assert run(KITS / "go", "go", "list", "-m", "all").split() == ["minibroker"]
