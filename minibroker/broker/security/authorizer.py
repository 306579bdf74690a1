"""Verdicts: may a principal do something with a resource? The rules are those of Kafka's StandardAuthorizer.

    a super user                                  allowed
    an ACL that matches denies it                 denied
    an ACL that matches allows it                 allowed
    no ACL covers the resource, for nobody        as `allow.everyone.if.no.acl.found` says
    otherwise                                     denied

An ACL matches if it covers the resource (its literal name, "*", or a prefix), is of the principal or of User:*, of the
host, of a range with it or of "*", and of the operation or of ALL. To allow READ, WRITE, DELETE or ALTER also allows
DESCRIBE, and ALTER_CONFIGS allows DESCRIBE_CONFIGS; to deny them denies nothing else.
"""

from __future__ import annotations

from minibroker.broker.security.acls import ANY_NAME, ANY_PRINCIPAL, Acls, PatternType, Permission
from minibroker.broker.security.operations import Operation, Right
from minibroker.broker.security.principals import Principal

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MAX_VERDICTS = 10_000  # that are remembered, and
MAX_NAME_LENGTH = 249  # of which names: a topic has no longer one
SOME_NAME = "hardcode"  # of a topic that Kafka asks for instead of all

IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
DENYING = {
    operation: frozenset({(Permission.DENY, operation), (Permission.DENY, Operation.ALL)}) for operation in Operation
}
NAMING = {
    operation: frozenset({(Permission.ALLOW, operation), (Permission.ALLOW, Operation.ALL)}) for operation in Operation
}
ALLOWING = {
    operation: NAMING[operation] | {(Permission.ALLOW, implying) for implying in IMPLYING.get(operation, ())}
    for operation in Operation
}


class Authorizer:
    """The rules on the present ACLs, and the last verdicts, which are void when an ACL changes."""

    def __init__(self, acls: Acls, super_users: frozenset[str] = frozenset(), *, allow_without_acl: bool) -> None:
        """`super_users` are texts such as User:a, as in `super.users`."""
        self._acls = acls
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._verdicts: dict[tuple[Principal, str, Right, str | None], bool] = {}
        self._changes = acls.changes

    def allows(self, principal: Principal, host: str, right: Right, name: str) -> bool:
        """Return whether a principal has a right on a resource, asking from this address, as Java writes it."""
        key = principal, host, right, name
        if self._acls.changes != self._changes:
            self._forget()
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._decide(str(principal), host, right, name)
            if len(name) <= MAX_NAME_LENGTH:
                self._keep(key, verdict)
        return verdict

    def allows_some(self, principal: Principal, host: str, right: Right) -> bool:
        """Return whether a principal has a right on any resource of the type: Kafka's authorizeByResourceType."""
        key = principal, host, right, None
        if self._acls.changes != self._changes:
            self._forget()
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._decide_some(str(principal), host, right)
            self._keep(key, verdict)
        return verdict

    def _keep(self, key: tuple[Principal, str, Right, str | None], verdict: bool) -> None:
        if len(self._verdicts) >= MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[key] = verdict

    def _forget(self) -> None:
        self._verdicts.clear()
        self._changes = self._acls.changes

    def _decide(self, principal: str, host: str, right: Right, name: str) -> bool:
        if principal in self._super_users:
            return True
        denying, allowing = DENYING[right.operation], ALLOWING[right.operation]
        is_allowed, is_covered = False, False
        for by_principal in self._acls.concerning(right.resource_type, name):
            is_covered = True
            for text in (principal, ANY_PRINCIPAL):
                grants = by_principal.get(text)
                for held in () if grants is None else grants.for_host(host):
                    if not held.isdisjoint(denying):
                        return False
                    is_allowed = is_allowed or not held.isdisjoint(allowing)
        return is_allowed or (not is_covered and self._allow_without_acl)

    def _decide_some(self, principal: str, host: str, right: Right) -> bool:
        """Look for an ACL that allows it and that no ACL denies altogether.

        As in Kafka, a topic that nobody has named in an ACL is asked for first, for super users and the like, and no
        operation implies another here.
        """
        if self._decide(principal, host, right, SOME_NAME):
            return True
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for text in {principal, ANY_PRINCIPAL}:
            for pattern_type, name, grants in self._acls.of(text, right.resource_type):
                for held in grants.for_host(host):
                    if not held.isdisjoint(DENYING[right.operation]):
                        denied.add((pattern_type, name))
                    if not held.isdisjoint(NAMING[right.operation]):
                        allowed.add((pattern_type, name))
        any_name = PatternType.LITERAL, ANY_NAME
        if any_name in denied or any_name in allowed:
            return any_name not in denied
        return any(not _is_dominated(pattern, denied) for pattern in allowed)


def _is_dominated(pattern: tuple[int, str], denied: set[tuple[int, str]]) -> bool:
    """Return whether everything that a pattern covers is denied."""
    pattern_type, name = pattern
    if pattern_type == PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
