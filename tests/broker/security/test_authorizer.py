"""Verdicts of the authorizer: Kafka's rules one by one, and at random against a model that only loops over all ACLs."""

from __future__ import annotations

import random

import pytest

from minibroker.broker.security import authorizer as module
from minibroker.broker.security.acls import Acl, Acls, PatternType, Permission
from minibroker.broker.security.authorizer import Authorizer
from minibroker.broker.security.operations import (
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    READ_TOPIC,
    WRITE_TOPIC,
    Operation,
    ResourceType,
    Right,
)
from minibroker.broker.security.principals import Principal
from tests.cases import for_each

ALICE = Principal("User", "alice")
HOST = "10.1.2.3"
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def acl(
    operation: Operation,
    name: str = "t",
    *,
    permission: Permission = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def authorizer(*acls: Acl, super_users: frozenset[str] = frozenset(), allow_without_acl: bool = False) -> Authorizer:
    fold = Acls()
    for number, each in enumerate(acls):
        fold.add_acl(number.to_bytes(16, "big"), each)
    return Authorizer(fold, super_users, allow_without_acl=allow_without_acl)


def allows(made: Authorizer, right: Right, name: str = "t", principal: Principal = ALICE, host: str = HOST) -> bool:
    return made.allows_operation(principal, host, right, name)


def test_no_operation_is_allowed_without_an_acl() -> None:
    assert not allows(authorizer(), READ_TOPIC)


def test_a_super_user_may_do_everything_despite_deny_acls() -> None:
    made = authorizer(acl(Operation.READ, permission=DENY), super_users=frozenset({"User:alice"}))
    assert allows(made, READ_TOPIC)
    assert made.allows_on_any_resource(ALICE, HOST, WRITE_TOPIC)
    assert not allows(made, READ_TOPIC, principal=Principal("User", "bob"))


@for_each(
    ("pattern", "of", "name", "covered"),
    [
        (LITERAL, "t", "t", True),
        (LITERAL, "t", "tt", False),
        (LITERAL, "*", "t", True),
        (PREFIXED, "t", "t", True),
        (PREFIXED, "t", "tt", True),
        (PREFIXED, "tt", "t", False),
        (PREFIXED, "*", "t", False),
    ],
)
def test_literal_prefixed_and_wildcard_acl_patterns_match_names(
    pattern: PatternType, of: str, name: str, covered: bool
) -> None:
    assert allows(authorizer(acl(Operation.READ, of, pattern=pattern)), READ_TOPIC, name) is covered


def test_a_deny_acl_overrides_allow_acls() -> None:
    made = authorizer(acl(Operation.READ), acl(Operation.READ, "*", permission=DENY, principal="User:*"))
    assert not allows(made, READ_TOPIC)


@pytest.mark.parametrize("implying", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_allow_acls_imply_describe_and_deny_acls_do_not(implying: Operation) -> None:
    assert allows(authorizer(acl(implying)), DESCRIBE_TOPIC)
    assert allows(authorizer(acl(Operation.DESCRIBE), acl(implying, permission=DENY)), DESCRIBE_TOPIC)


def test_alter_configs_implies_only_describe_configs() -> None:
    made = authorizer(acl(Operation.ALTER_CONFIGS))
    assert allows(made, DESCRIBE_TOPIC_CONFIGS)
    assert not allows(made, DESCRIBE_TOPIC)


def test_the_operation_all_allows_and_denies_every_operation() -> None:
    assert allows(authorizer(acl(Operation.ALL)), WRITE_TOPIC)
    assert not allows(authorizer(acl(Operation.ALL), acl(Operation.ALL, permission=DENY)), DESCRIBE_TOPIC)


@for_each(
    ("host", "client", "matches"),
    [
        ("*", HOST, True),
        (HOST, HOST, True),
        ("10.1.2.4", HOST, False),
        ("10.0.0.0/8", HOST, True),
        ("10.9.9.9/8", HOST, True),
        ("10.1.2.0/30", "10.1.2.4", False),
        ("0:0:0:0:0:0:0:1", "0:0:0:0:0:0:0:1", True),
        ("::1", "0:0:0:0:0:0:0:1", False),  # Java does not write it so
        ("fe80::/10", "fe80:0:0:0:0:0:0:1%eth0", True),
        ("10.0.0.0/8", "0:0:0:0:0:0:0:1", False),
        ("::/0", HOST, False),
        ("10.0.0.0/33", HOST, False),
    ],
)
def test_an_acl_applies_only_to_clients_of_its_host(host: str, client: str, matches: bool) -> None:
    assert allows(authorizer(acl(Operation.READ, host=host)), READ_TOPIC, host=client) is matches


def test_allow_everyone_applies_only_to_resources_without_any_acl() -> None:
    made = authorizer(acl(Operation.READ, "a", pattern=PREFIXED, principal="User:bob"), allow_without_acl=True)
    assert allows(made, READ_TOPIC, "t")
    assert not allows(made, READ_TOPIC, "ab")


def test_a_changed_acl_invalidates_cached_verdicts() -> None:
    fold = Acls()
    made = Authorizer(fold, allow_without_acl=False)
    verdicts = [allows(made, READ_TOPIC)]
    fold.add_acl(b"1", acl(Operation.READ))
    verdicts += [allows(made, READ_TOPIC), made.allows_on_any_resource(ALICE, HOST, READ_TOPIC)]
    fold.remove_acl(b"1")
    verdicts += [allows(made, READ_TOPIC), made.allows_on_any_resource(ALICE, HOST, READ_TOPIC)]
    assert verdicts == [False, True, True, False, False]


def test_cached_verdicts_are_bounded_and_exclude_long_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VERDICTS", 10)
    made = authorizer(acl(Operation.READ, "1"))
    assert [number for number in range(25) if allows(made, READ_TOPIC, str(number))] == [1]
    kept = made._verdicts
    assert 0 < len(kept) <= 10
    allows(made, READ_TOPIC, "x" * 250)
    assert all(len(name or "") < 250 for *_, name in kept)


@for_each(
    ("acls", "some"),
    [
        ([], False),
        ([acl(Operation.WRITE)], True),
        ([acl(Operation.READ)], False),
        ([acl(Operation.WRITE, "*")], True),
        ([acl(Operation.WRITE), acl(Operation.WRITE, permission=DENY)], False),
        ([acl(Operation.WRITE), acl(Operation.WRITE, "*", permission=DENY)], False),
        ([acl(Operation.WRITE, "tt"), acl(Operation.WRITE, permission=DENY, pattern=PREFIXED)], False),
        ([acl(Operation.WRITE, pattern=PREFIXED), acl(Operation.ALL, "tt", permission=DENY, pattern=PREFIXED)], True),
        ([acl(Operation.WRITE, "*"), acl(Operation.WRITE, permission=DENY)], True),
        ([acl(Operation.WRITE, host="10.9.9.9")], False),
    ],
)
def test_authorize_by_resource_type_finds_any_writable_resource(acls: list[Acl], some: bool) -> None:
    assert authorizer(*acls).allows_on_any_resource(ALICE, HOST, WRITE_TOPIC) is some


# --- at random ----------------------------------------------------------------------------------

NAMES = ["*", "a", "ab", "abc", "b", "ba", "c"]
HOSTS = ["*", HOST, "10.1.2.4", "10.1.0.0/16"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
OPERATIONS = [each for each in Operation if each is not Operation.ANY]
IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def random_acl(source: random.Random) -> Acl:
    return acl(
        source.choice(OPERATIONS),
        source.choice(NAMES),
        permission=source.choice([ALLOW, ALLOW, DENY]),
        pattern=source.choice([LITERAL, PREFIXED]),
        principal=source.choice(PRINCIPALS),
        host=source.choice(HOSTS),
        resource_type=source.choice([ResourceType.TOPIC, ResourceType.GROUP]),
    )


def slow_verdict(acls: list[Acl], right: Right, name: str, principal: str, host: str, *, without_acl: bool) -> bool:
    covering = [
        each
        for each in acls
        if each.resource_type == right.resource_type
        and (name.startswith(each.name) if each.pattern_type == PREFIXED else each.name in (name, "*"))
    ]
    matching = [
        each
        for each in covering
        if each.principal in (principal, "User:*")
        and (each.host in ("*", host) or each.host == "10.1.0.0/16" and host.startswith("10.1."))
    ]
    for each in matching:
        if each.permission == DENY and each.operation in (right.operation, Operation.ALL):
            return False
    implying = IMPLIED.get(right.operation, set()) | {right.operation, Operation.ALL}
    allowed = any(each.permission == ALLOW and each.operation in implying for each in matching)
    return allowed or (without_acl and not covering)


@for_each("seed", range(20))
def test_verdicts_equal_those_of_a_loop_over_all_acls(seed: int) -> None:
    source = random.Random(seed)
    without_acl = bool(seed % 2)
    fold, there = Acls(), dict[bytes, Acl]()
    made = Authorizer(fold, allow_without_acl=without_acl)
    for step in range(100):
        if there and source.random() < 0.4:
            gone = source.choice(list(there))
            del there[gone]
            fold.remove_acl(gone)
        elif (new := random_acl(source)) not in there.values():
            there[step.to_bytes(16, "big")] = new
            fold.add_acl(step.to_bytes(16, "big"), new)
        for _ in range(10):
            right = Right(source.choice(OPERATIONS[1:]), source.choice([ResourceType.TOPIC, ResourceType.GROUP]))
            name, host = source.choice(NAMES[1:]), source.choice([HOST, "10.1.2.4", "10.2.0.1"])
            principal = Principal(*source.choice(PRINCIPALS).split(":"))
            verdict = made.allows_operation(principal, host, right, name)
            expected = slow_verdict(list(there.values()), right, name, str(principal), host, without_acl=without_acl)
            assert verdict == expected, (seed, right, name, principal, host, there)
    for id in list(there):
        fold.remove_acl(id)
    assert not (fold.ids or fold._on_patterns or fold._of_principals or fold._length_counts)
