"""ACLs, and a search for those that cover a resource: a fold over the records of the metadata log.

Pure. `authorizer` decides by them. The host of an ACL is an address, "*", or a range of addresses (KIP-1276);
`ipaddress` is imported where it is needed, as it would slow the start by milliseconds.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from minibroker.broker.security.operations import CLUSTER_NAME, Operation, ResourceType
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import AccessControlEntryRecord

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

ANY_NAME = "*"  # of a literal pattern that covers all resources of its type
ANY_PRINCIPAL = "User:*"
UNKNOWN = "UNKNOWN"
NO_VALUE = (UNKNOWN, "ANY")

ANY_HOST = "*"


class PatternType(IntEnum):
    """How an ACL names its resources. ANY and MATCH are only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Kafka's AclPermissionType. ANY is only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """A rule that allows or denies an operation on the resources of a pattern.

    It applies to one principal, and to an address, a range of addresses, or any ("*").
    """

    resource_type: int
    name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def make_acl_record(self, id: bytes) -> AccessControlEntryRecord:
        """Return the metadata record that creates the ACL."""
        return AccessControlEntryRecord(
            id=id,
            resource_type=self.resource_type,
            resource_name=self.name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )


def check_new_acl(acl: Acl) -> None:
    """Raise KafkaError(INVALID_REQUEST) with Kafka's message if an ACL cannot be created."""
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _make_invalid_request_error(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.name:
        raise _make_invalid_request_error("Invalid empty resource name")
    if _get_enum_name(ResourceType, acl.resource_type) in NO_VALUE:
        raise _make_invalid_request_error(f"Invalid resourceType {_get_enum_name(ResourceType, acl.resource_type)}")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _make_invalid_request_error(f"Invalid patternType {_get_enum_name(PatternType, acl.pattern_type)}")
    if _get_enum_name(Operation, acl.operation) in NO_VALUE:
        raise _make_invalid_request_error(f"Invalid operation {_get_enum_name(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise _make_invalid_request_error(f"Invalid permissionType {_get_enum_name(Permission, acl.permission)}")
    if ":" not in acl.principal:
        reason = "no colon is present separating the principal type from the principal name"
        raise _make_invalid_request_error(f"Could not parse principal from `{acl.principal}` ({reason})")
    if not acl.host:
        raise _make_invalid_request_error("Host pattern cannot be null or empty")
    if "/" in acl.host:
        try:
            parse_address_range(acl.host)
        except ValueError as error:
            raise _make_invalid_request_error(f"Invalid CIDR notation '{acl.host}': {error}") from None


def _get_enum_name(enum_class: type[IntEnum], number: int) -> str:
    """Return the name of the enum member with this number, or UNKNOWN."""
    return enum_class(number).name if number in enum_class.__members__.values() else UNKNOWN


def _make_invalid_request_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


class AclFilter(NamedTuple):
    """A filter of ACLs. None and ANY match everything; the pattern type MATCH, all patterns that cover the name."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check_types_known(self) -> None:
        """Raise KafkaError(INVALID_REQUEST) with Kafka's message if a type is unknown."""
        if UNKNOWN in (
            _get_enum_name(ResourceType, self.resource_type),
            _get_enum_name(PatternType, self.pattern_type),
        ):
            raise _make_invalid_request_error("Unknown patternFilter.")
        if UNKNOWN in (_get_enum_name(Operation, self.operation), _get_enum_name(Permission, self.permission)):
            raise _make_invalid_request_error("Unknown entryFilter.")

    def matches_acl(self, acl: Acl) -> bool:
        """Return whether an ACL passes the filter."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_resource_pattern(acl)
        )

    def _matches_resource_pattern(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None or self.name == acl.name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if acl.pattern_type == PatternType.PREFIXED:
            return self.name.startswith(acl.name)
        return acl.name == ANY_NAME


class PatternGrants:
    """All ACLs of one principal on one pattern: by host, the permissions with their operations."""

    __slots__ = ("_by_host", "_ranges")

    def __init__(self) -> None:
        self._by_host: dict[str, set[tuple[int, int]]] = {}
        self._ranges: dict[str, IPv4Network | IPv6Network] = {}

    def add_acl(self, acl: Acl) -> None:
        """Add an ACL. A host with a slash that is not a valid range covers no address."""
        self._by_host.setdefault(acl.host, set()).add((acl.permission, acl.operation))
        if "/" in acl.host and acl.host not in self._ranges:
            try:
                self._ranges[acl.host] = parse_address_range(acl.host)
            except ValueError:
                return

    def remove_acl(self, acl: Acl) -> None:
        """Remove an ACL."""
        held = self._by_host.get(acl.host, set())
        held.discard((acl.permission, acl.operation))
        if not held:
            self._by_host.pop(acl.host, None)
            self._ranges.pop(acl.host, None)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._by_host)

    def iterate_operations_for_host(self, host: str) -> Iterator[set[tuple[int, int]]]:
        """Yield the (permission, operation) of ACLs for this host, for address ranges with it, and for all hosts."""
        for text in (host, ANY_HOST):
            held = self._by_host.get(text)
            if held is not None:
                yield held
        for text, addresses in self._ranges.items():
            if is_host_in_range(host, addresses):
                yield self._by_host[text]


class Acls:
    """All ACLs, by id and by pattern.

    `changes` counts the changes. `is_changing` is whether a request is changing them now.
    """

    def __init__(self) -> None:
        self.by_id: dict[bytes, Acl] = {}
        self.ids: dict[Acl, bytes] = {}
        self.changes = 0
        self.is_changing = False
        self._on_patterns: dict[tuple[int, int, str], dict[str, PatternGrants]] = {}  # by type, pattern type and name
        self._of_principals: dict[tuple[str, int], dict[tuple[int, str], PatternGrants]] = {}
        self._lengths: dict[int, list[int]] = {}  # of prefixes, by type of resource: sorted, each once
        self._length_counts: Counter[tuple[int, int]] = Counter()  # of patterns, by type and length

    def add_acl(self, id: bytes, acl: Acl) -> None:
        """Add an ACL. It may exist already, as a snapshot can repeat records of the log."""
        if id in self.by_id:
            self.remove_acl(id)
        self.changes += 1
        self.by_id[id] = acl
        self.ids[acl] = id
        pattern = acl.resource_type, acl.pattern_type, acl.name
        if pattern not in self._on_patterns:
            self._on_patterns[pattern] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                self._add_prefix_length(acl.resource_type, len(acl.name))
        grants = self._on_patterns[pattern].setdefault(acl.principal, PatternGrants())
        of_principal = self._of_principals.setdefault((acl.principal, acl.resource_type), {})
        of_principal[acl.pattern_type, acl.name] = grants
        grants.add_acl(acl)

    def _add_prefix_length(self, resource_type: int, length: int) -> None:
        """Count a prefixed pattern of this length, so that look-ups try prefixes of it."""
        self._length_counts[resource_type, length] += 1
        if self._length_counts[resource_type, length] == 1:
            bisect.insort(self._lengths.setdefault(resource_type, []), length)

    def remove_acl(self, id: bytes) -> None:
        """Remove an ACL. Raises KeyError if there is none with this id."""
        self.changes += 1
        acl = self.by_id.pop(id)
        self.ids.pop(acl, None)
        pattern = acl.resource_type, acl.pattern_type, acl.name
        grants = self._on_patterns[pattern][acl.principal]
        grants.remove_acl(acl)
        if grants:
            return
        del self._on_patterns[pattern][acl.principal]
        key = acl.principal, acl.resource_type
        del self._of_principals[key][acl.pattern_type, acl.name]
        if not self._of_principals[key]:
            del self._of_principals[key]
        if not self._on_patterns[pattern]:
            del self._on_patterns[pattern]
            if acl.pattern_type == PatternType.PREFIXED:
                self._remove_prefix_length(acl.resource_type, len(acl.name))

    def _remove_prefix_length(self, resource_type: int, length: int) -> None:
        """Count a prefixed pattern of this length no more."""
        self._length_counts[resource_type, length] -= 1
        if not self._length_counts[resource_type, length]:
            del self._length_counts[resource_type, length]
            self._lengths[resource_type].remove(length)

    def iterate_matching_grants(self, resource_type: int, name: str) -> Iterator[dict[str, PatternGrants]]:
        """Yield the grants by principal of each pattern that covers a resource."""
        patterns = self._on_patterns
        for literal in {name, ANY_NAME}:
            pattern = patterns.get((resource_type, PatternType.LITERAL, literal))
            if pattern is not None:
                yield pattern
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                return
            pattern = patterns.get((resource_type, PatternType.PREFIXED, name[:length]))
            if pattern is not None:
                yield pattern

    def iterate_principal_grants(self, principal: str, resource_type: int) -> Iterator[tuple[int, str, PatternGrants]]:
        """Yield (pattern type, name, grants) of all ACLs of a principal for a type of resource."""
        for (pattern_type, name), grants in self._of_principals.get((principal, resource_type), {}).items():
            yield pattern_type, name, grants


def parse_address_range(text: str) -> IPv4Network | IPv6Network:
    """Return the range of addresses for a text such as 10.1.0.0/16. Raises ValueError."""
    from ipaddress import ip_network

    _, _, bits = text.partition("/")
    if not (bits.isascii() and bits.isdecimal()):
        raise ValueError(f"{bits!r} is no number of bits")
    return ip_network(text, strict=False)


def is_host_in_range(host: str, addresses: IPv4Network | IPv6Network) -> bool:
    """Return whether a range contains the address. A range of IPv6 addresses contains no IPv4 address."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.version == addresses.version and address in addresses
