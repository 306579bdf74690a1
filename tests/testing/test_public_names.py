"""The names of the test kit that are its users': what the package exports, and what editors and consoles offer."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import minibroker.testing
from minibroker.testing import Broker

REFERENCE = Path(__file__).parents[2] / "docs" / "testing-reference.md"
FROM_ELSEWHERE = {"Duration", "TokenOptions", "KafkaError", "SettingsError", "StartError"}  # which have no methods
CLASSES = [name for name in minibroker.testing.__all__ if name not in FROM_ELSEWHERE]


def offered(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_every_public_name_exists_and_no_other_is_offered() -> None:
    assert dir(minibroker.testing) == minibroker.testing.__all__ == sorted(minibroker.testing.__all__)
    for name in minibroker.testing.__all__:
        assert getattr(minibroker.testing, name).__doc__ or name == "Duration"
    with pytest.raises(AttributeError, match="has no attribute 'Brokre'"):
        _ = minibroker.testing.Brokre


def test_type_checkers_see_the_same_names() -> None:
    declared = Path(minibroker.testing.__file__).read_text()
    assert all(f"import {name} as {name}\n" in declared for name in minibroker.testing.__all__)


def test_the_package_imports_nothing_until_a_name_is_used() -> None:
    script = "import sys, minibroker.testing; print(sorted(n for n in sys.modules if n.startswith('minibroker.')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.replace("'minibroker._version', ", "") == "['minibroker.testing']\n"


def test_internal_names_of_the_test_kit_are_not_offered() -> None:
    with Broker(security="SASL_SSL") as broker:
        assert offered(broker) >= {"produce", "aproduce", "expect", "faults", "journal", "clock", "bootstrap_servers"}
        assert not offered(broker) & {
            "running",
            "loop",
            "interceptors",
            "watch",
            "call_on_loop",
            "moving_clock",
        }
        fault = broker.faults.add(api="Fetch", delay="1 s")
        assert offered(fault) == {
            *("rule", "number", "matches", "hits", "held", "remove", "wait_for_hits", "await_for_hits")
        }
        assert offered(broker.faults) == {"add", "add_all", "load", "all", "remove", "clear"}
        assert offered(broker.journal) == {"on", "off", "is_on", "seen", "dropped", "clear", "requests", "save"}
        assert offered(broker.users) == {"add", "remove"}
        assert offered(broker.clock) == {"now_ms", "advance", "aadvance", "freeze", "unfreeze", "frozen"}
        assert not offered(broker.issuer) & {"start", "stop", "reset", "loop"}


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_a_docstring_and_types(name: str) -> None:
    kind = getattr(minibroker.testing, name)
    for member, method in inspect.getmembers(kind, inspect.isfunction):
        if not member.startswith("_") and method.__module__.startswith("minibroker.testing"):
            assert inspect.getdoc(method), member
            signature = inspect.signature(method)
            hints = [each.annotation for each in list(signature.parameters.values())[1:]]
            assert inspect.Signature.empty not in [*hints, signature.return_annotation], member


def test_every_method_documents_its_exceptions() -> None:
    """Besides NotRunning, which the reference says of all."""
    safe = {
        *("Broker.client_metrics", "Broker.elect_leaders", "Broker.kill", "Broker.refresh", "Broker.release"),
        *("Broker.reset", "Broker.resume_node", "Broker.share_group", "Broker.stop"),
        *("TestClock.freeze", "TestClock.now_ms", "TestClock.unfreeze", "Journal.clear", "Journal.on", "Journal.off"),
        *("Faults.all", "Faults.clear", "Faults.remove", "Users.add", "AclVerbs.clear", "TokenVerbs.list"),
        *("ShareGroupVerbs.deliveries", "ShareGroupVerbs.dead_letters"),  # what all of this class raise
        *("Issuer.client_key", "Issuer.rotate_keys"),
        *("RegistryVerbs.clear_faults", "RegistryVerbs.faults", "RegistryVerbs.requests", "RegistryVerbs.subjects"),
    }
    broker = Broker(security="SASL_SSL", registry=True)
    verbs = [broker.acls, broker.quotas, broker.tokens, broker.share_group("g"), broker.issuer, broker.users]
    verbs.append(broker.registry)
    silent = set()
    for owner in (broker, broker.clock, broker.journal, broker.faults, *verbs):
        kind = type(owner)
        for name in offered(owner):
            method = inspect.getattr_static(kind, name, None)
            is_verb = inspect.isfunction(method) and not inspect.iscoroutinefunction(method)
            if is_verb and "Raises" not in (inspect.getdoc(method) or ""):
                silent.add(f"{kind.__name__}.{name}")
    assert silent == safe


def test_the_reference_has_every_class_and_every_method_of_a_broker() -> None:
    text = REFERENCE.read_text()
    assert [name for name in minibroker.testing.__all__ if f"minibroker.testing.{name}" not in text] == []
    names = offered(Broker())
    twins = {name for name in names if name[1:] in names}
    assert [name for name in names - twins if f"minibroker.testing.Broker.{name}\n" not in text] == ["nodes"]
