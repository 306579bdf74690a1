"""The identity of a client, for the authorizer and the quotas: Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """A type, mostly "User", and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        """Return it as ACLs and Kafka's tools write it."""
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")  # who has not authenticated


def super_users(text: str) -> frozenset[str]:
    """Return the principals in a value of `super.users`, such as "User:a;User:b"; a name may have commas."""
    return frozenset(filter(None, map(str.strip, text.split(";"))))
