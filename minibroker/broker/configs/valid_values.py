"""What the values of settings may be, with Kafka's objections to others.

The versions that `message.format.version` may have select a message format, which `protocol/records/` implements. Kafka
3 treated every value as 3.0, and Kafka 4 removed the setting; here it has the meaning that it had until Kafka 2.8.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

from minibroker.named_tuples import NamedTuple

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

# The number of -IV versions of each release; until 0.9.0 there were none.
_RELEASES = {
    "0.10.0": 2,
    "0.10.1": 3,
    "0.10.2": 1,
    "0.11.0": 3,
    "1.0": 1,
    "1.1": 1,
    "2.0": 2,
    "2.1": 3,
    "2.2": 2,
    "2.3": 2,
    "2.4": 2,
    "2.5": 1,
    "2.6": 1,
    "2.7": 3,
    "2.8": 2,
    "3.0": 2,
    "3.1": 1,
    "3.2": 1,
    "3.3": 4,
    "3.4": 1,
    "3.5": 3,
    "3.6": 3,
    "3.7": 5,
    "3.8": 1,
    "3.9": 1,
    "4.0": 4,
    "4.1": 2,
    "4.2": 2,
    "4.3": 1,
}
_FORMATS = {"0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 1, "0.10.1": 1, "0.10.2": 1}
_LATEST_FORMAT = 2


class ValidValues(Protocol):
    """What a value may be."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""


class Range(NamedTuple):
    """Numbers from `minimum` to `maximum` inclusive, and `or_equal_to`, if set."""

    minimum: float | None = None
    maximum: float | None = None
    or_equal_to: int | None = None

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if self.or_equal_to is not None:
            allowed = value == self.or_equal_to or (self.minimum or 0) <= value <= (self.maximum or 0)
            text = f"Value must be between {self.minimum} and {self.maximum} or equal to {self.or_equal_to}"
            return None if allowed else text
        if self.minimum is not None and not value >= self.minimum:
            return f"Value must be at least {self.minimum}"
        if self.maximum is not None and not value <= self.maximum:
            return f"Value must be no more than {self.maximum}"
        return None


class OneOf(NamedTuple):
    """One of `choices`, or a list of them; with `some`, the list must not be empty."""

    choices: tuple[str, ...]
    some: bool = False

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        words = value if isinstance(value, tuple) else (value,)
        if self.some and not words:
            return f"must not be empty. Valid values include: [{', '.join(self.choices)}]"
        if all(word in self.choices for word in words):
            return None
        return f"String must be one of: {', '.join(self.choices)}"


class AnyCaseOf(NamedTuple):
    """One of `choices`, in any case."""

    choices: tuple[str, ...]

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if value.upper() in self.choices:
            return None
        return f"String must be one of (case insensitive): {', '.join(self.choices)}"


class ReplicaList(NamedTuple):
    """`*`, or `partition:broker` pairs."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        if value == ("*",) or all(_is_replica_pair(pair) for pair in value):
            return None
        return "must be the literal '*' or a list of replicas in the format [partitionId]:[brokerId],..."


class FormatVersion(NamedTuple):
    """A version of Kafka, as in `message.format.version` before Kafka 4; it selects that version's message format."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        return None if find_magic_of_format_version(value) is not None else f"Version {value} is not a valid version"


class NonEmpty(NamedTuple):
    """A list of at least one element."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return an objection to the value, or None."""
        return None if value else "must not be empty"


class ConnectionCounts(NamedTuple):
    """`address:number` pairs."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return an objection to the value, or None."""
        try:
            parse_connection_counts(value)
        except ValueError as error:
            return f"must be a list of address:number, and {error}"
        return None


def parse_connection_counts(text: str) -> dict[str, int]:
    """Return a comma-separated list of address:number as a dict. Raises ValueError."""
    import ipaddress  # which hardly a broker needs

    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        address, _, number = pair.rpartition(":")
        found[str(ipaddress.ip_address(address.strip("[]")))] = int(number)
    return found


class AuthorizerClass(NamedTuple):
    """The name of Kafka's own authorizer, or nothing."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return an objection to the value, or None."""
        return None if value in ("", STANDARD_AUTHORIZER) else f"The only authorizer is {STANDARD_AUTHORIZER}"


def parse_super_users(text: str) -> frozenset[str]:
    """Return the principals in a value of `super.users`, such as "User:a;User:b". Names may contain commas."""
    return frozenset(filter(None, map(str.strip, text.split(";"))))


class Principals(NamedTuple):
    """Principals as type:name, with semicolons between them."""

    def find_validation_error(self, value: Any) -> str | None:
        """Return Kafka's objection to the value, or None."""
        wrong = next((text for text in sorted(parse_super_users(value)) if ":" not in text), None)
        return wrong and f"expected a string in format principalType:principalName but got {wrong}"


def _is_replica_pair(pair: str) -> bool:
    partition, separator, broker = pair.partition(":")
    return bool(separator) and partition.isdecimal() and broker.isdecimal()


@cache
def find_magic_of_format_version(version: str) -> int | None:
    """Return the magic byte of the format of a version of Kafka, or None if there is no such version.

    As in Kafka, a release may have more parts than it needs: 0.10.0.1 is 0.10.0, and 2.8.2 is 2.8.
    """
    parts = version.split(".")
    release, separator, internal = ".".join(parts[: 3 if parts[0] == "0" else 2]).partition("-IV")
    if separator:
        if not internal.isdecimal() or int(internal) >= _RELEASES.get(release, 0):
            return None
    elif release not in _FORMATS and release not in _RELEASES:
        return None
    return _FORMATS.get(release, _LATEST_FORMAT)
