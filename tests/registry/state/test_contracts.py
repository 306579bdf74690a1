"""Rules of schemas: which are valid, and how they are stored."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.registry.state.contracts import InvalidRules, normalize_contract_part
from tests.cases import for_each
from tests.registry.asking import Asking, record

RULE = {"name": "r", "type": "CEL"}


def test_a_rule_is_stored_with_its_defaults_and_in_order(registry: Asking) -> None:
    rule = {
        "type": "CEL",
        "tags": ["b", "a", "b"],
        "params": {"y": "1", "x": "2"},
        "name": "r",
        "unknown": 5,
        "doc": None,
    }
    registry.register("s", record("A"), ruleSet={"domainRules": [rule], "migrationRules": []})
    assert registry.get("/subjects/s/versions/1").body["ruleSet"] == {
        "domainRules": [
            {
                "name": "r",
                "kind": "TRANSFORM",
                "mode": "WRITEREAD",
                "type": "CEL",
                "tags": ["a", "b"],
                "params": {"x": "2", "y": "1"},
                "disabled": False,
            }
        ]
    }


@for_each(
    ("rules", "message"),
    [
        ({"domainRules": [RULE, RULE]}, "Found rule with duplicate name 'r'"),
        ({"domainRules": [RULE], "encodingRules": [RULE]}, "Found rule with duplicate name 'r'"),
        ({"migrationRules": [RULE]}, "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"),
        ({"domainRules": [RULE | {"mode": "UPDOWN"}]}, "Domain rules can only be WRITE, READ, WRITEREAD"),
        ({"domainRules": [{"name": "r"}]}, "Missing rule type"),
        ({"domainRules": [{"type": "CEL"}]}, "Missing rule name"),
        ({"domainRules": [RULE | {"name": ""}]}, "Empty rule name"),
        ({"domainRules": [RULE | {"name": "r" * 65}]}, "Rule name too long"),
        ({"domainRules": [RULE | {"name": "1r"}]}, "Illegal initial character in rule name: 1r"),
        ({"domainRules": [RULE | {"name": "r r"}]}, "Illegal character in rule name: r r"),
        (
            {"domainRules": [RULE | {"mode": "READ", "onFailure": "NONE,ERROR"}]},
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
    ],
)
def test_invalid_rules_are_rejected_with_confluents_messages(rules: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRules) as refused:
        normalize_contract_part(rules)
    assert str(refused.value) == message


def test_rules_are_validated_in_schemas_and_configs(registry: Asking) -> None:
    wrong = {"migrationRules": [RULE]}
    message = "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN"
    for answer in (
        registry.register("s", record("A"), ruleSet=wrong),
        registry.put("/config", {"defaultRuleSet": wrong}),
        registry.put("/config/s", {"overrideRuleSet": wrong}),
    ):
        assert answer[:2] == (422, {"error_code": 42210, "message": message})


@pytest.mark.parametrize("wrong", [{"kind": "X"}, {"mode": "X"}])
def test_a_rule_of_an_unknown_kind_or_mode_is_rejected(registry: Asking, wrong: dict[str, str]) -> None:
    assert registry.register("s", record("A"), ruleSet={"domainRules": [RULE | wrong]}).code == 422


def test_a_rule_of_mode_writeread_may_have_two_actions() -> None:
    both = RULE | {"mode": "WRITEREAD", "onSuccess": "NONE,ERROR"}
    assert normalize_contract_part({"domainRules": [both]}) == {
        "domainRules": [{**both, "kind": "TRANSFORM", "disabled": False}]
    }
