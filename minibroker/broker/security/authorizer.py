"""The authorizer: may a principal do an operation on a resource? Its rules are those of Kafka's StandardAuthorizer.

The first rule that applies decides:

    the principal is a super user                 allowed
    an ACL that matches denies it                 denied
    an ACL that matches allows it                 allowed
    no ACL of any principal covers the resource   as `allow.everyone.if.no.acl.found` says
    otherwise                                     denied

An ACL matches if all of this holds:

- it covers the resource by its literal name, "*" or a prefix;
- it is for the principal or for User:*;
- it is for the host, for a range that contains the host, or for "*";
- it is for the operation or for ALL. If READ, WRITE, DELETE or ALTER is allowed, DESCRIBE is allowed too; if
  ALTER_CONFIGS is allowed, so is DESCRIBE_CONFIGS. Denials imply nothing else.
"""

from __future__ import annotations

from minibroker.broker.security.acls import ANY_NAME, ANY_PRINCIPAL, Acls, PatternType, Permission
from minibroker.broker.security.operations import Operation, Right
from minibroker.broker.security.principals import Principal

MAX_VERDICTS = 10_000  # in the cache
MAX_NAME_LENGTH = 249  # of resources in the cache: the longest name of a topic
SOME_NAME = "hardcode"  # the resource that Kafka's authorizeByResourceType tries

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
    """The rules for the current ACLs, with a cache of verdicts that is cleared when an ACL changes."""

    def __init__(self, acls: Acls, super_users: frozenset[str] = frozenset(), *, allow_without_acl: bool) -> None:
        """Decide by these ACLs. `super_users` are texts such as User:a, as in `super.users`."""
        self._acls = acls
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._verdicts: dict[tuple[Principal, str, Right, str | None], bool] = {}
        self._changes = acls.changes

    def allows_operation(self, principal: Principal, host: str, right: Right, name: str) -> bool:
        """Return whether a principal has a right on a resource. `host` is its address, as Java writes it."""
        key = principal, host, right, name
        if self._acls.changes != self._changes:
            self._clear_cached_verdicts()
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._is_allowed_by_acls(str(principal), host, right, name)
            if len(name) <= MAX_NAME_LENGTH:
                self._cache_verdict(key, verdict)
        return verdict

    def allows_on_any_resource(self, principal: Principal, host: str, right: Right) -> bool:
        """Return whether a principal has a right on any resource of the type: Kafka's authorizeByResourceType."""
        key = principal, host, right, None
        if self._acls.changes != self._changes:
            self._clear_cached_verdicts()
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._is_allowed_on_any_resource(str(principal), host, right)
            self._cache_verdict(key, verdict)
        return verdict

    def _cache_verdict(self, key: tuple[Principal, str, Right, str | None], verdict: bool) -> None:
        if len(self._verdicts) >= MAX_VERDICTS:
            self._verdicts.clear()
        self._verdicts[key] = verdict

    def _clear_cached_verdicts(self) -> None:
        self._verdicts.clear()
        self._changes = self._acls.changes

    def _is_allowed_by_acls(self, principal: str, host: str, right: Right, name: str) -> bool:
        if principal in self._super_users:
            return True
        denying, allowing = DENYING[right.operation], ALLOWING[right.operation]
        is_allowed, is_covered = False, False
        for by_principal in self._acls.iterate_matching_grants(right.resource_type, name):
            is_covered = True
            for text in (principal, ANY_PRINCIPAL):
                grants = by_principal.get(text)
                for held in () if grants is None else grants.iterate_operations_for_host(host):
                    if not held.isdisjoint(denying):
                        return False
                    is_allowed = is_allowed or not held.isdisjoint(allowing)
        return is_allowed or (not is_covered and self._allow_without_acl)

    def _is_allowed_on_any_resource(self, principal: str, host: str, right: Right) -> bool:
        """Return whether an ACL allows the operation on a pattern that no ACL denies as a whole.

        As in Kafka, a resource that no ACL names is tried first, for super users and for resources without an ACL, and
        no operation implies another one here.
        """
        if self._is_allowed_by_acls(principal, host, right, SOME_NAME):
            return True
        denied: set[tuple[int, str]] = set()
        allowed: set[tuple[int, str]] = set()
        for text in {principal, ANY_PRINCIPAL}:
            for pattern_type, name, grants in self._acls.iterate_principal_grants(text, right.resource_type):
                for held in grants.iterate_operations_for_host(host):
                    if not held.isdisjoint(DENYING[right.operation]):
                        denied.add((pattern_type, name))
                    if not held.isdisjoint(NAMING[right.operation]):
                        allowed.add((pattern_type, name))
        any_name = PatternType.LITERAL, ANY_NAME
        if any_name in denied or any_name in allowed:
            return any_name not in denied
        return any(not _is_covered_by_denial(pattern, denied) for pattern in allowed)


def _is_covered_by_denial(pattern: tuple[int, str], denied_patterns: set[tuple[int, str]]) -> bool:
    """Return whether the denied patterns cover everything that a pattern covers."""
    pattern_type, name = pattern
    if pattern_type == PatternType.LITERAL and pattern in denied_patterns:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied_patterns for end in range(1, len(name) + 1))
