"""Rules that make names of principals; conformance/security compares them with Kafka's own."""

from __future__ import annotations

import pytest

from minibroker.broker.security.principal_mapping import InvalidRules, NoRuleApplies, PrincipalMapping
from tests.cases import for_each

NAME = "CN=Alice,OU=ServiceUsers,O=Org,C=US"


@for_each(
    ("rules", "name"),
    [
        ("DEFAULT", NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/U,DEFAULT", "ALICE@SERVICEUSERS"),
        ("RULE:^CN=bob.*$/bob/, DEFAULT", NAME),
        ("RULE:^CN=bob.*$/bob/ , RULE:^CN=(?<who>[a-zA-Z]+).*/${who}/", "Alice"),
        (r"RULE:^CN=(\w+),.*$/a\/$1/", "a/Alice"),
        (r"RULE:^CN=(\w+),.*$/$1$4/", "Alice$4"),
        (r"RULE:^CN=(\w+),.*$/$12/", "Alice2"),
        (r"RULE:^CN=(\w+),.*$/\$1/", "$1"),
        (",,DEFAULT", NAME),
    ],
)
def test_the_first_matching_rule_determines_the_principal(rules: str, name: str) -> None:
    assert PrincipalMapping(rules).map_distinguished_name(NAME) == name


def test_a_name_that_matches_no_rule_has_no_principal() -> None:
    with pytest.raises(NoRuleApplies, match="no rule of ssl.principal.mapping.rules applies to 'CN=Alice"):
        PrincipalMapping("RULE:^CN=bob.*$/bob/").map_distinguished_name(NAME)


@for_each(
    "rules",
    ["default", "RULE:a", "RULE:a/b", "RULE:a/b/X", "DEFAULT RULE:a/b/", "RULE:(a/b/", "RULE:a/$1/", "RULE:(a)/${n}/"],
)
def test_invalid_mapping_rules_are_rejected(rules: str) -> None:
    with pytest.raises(InvalidRules) as refused:
        PrincipalMapping(rules)
    assert "\n" not in str(refused.value)
