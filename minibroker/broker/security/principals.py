"""The identity of a client, for the authorizer and the quotas: Kafka's KafkaPrincipal."""

from __future__ import annotations

from typing import Final

from minibroker.named_tuples import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """A type, which is mostly "User", and a name."""

    type: str
    name: str

    def __str__(self) -> str:
        """Return the principal as in ACLs and Kafka's tools, such as User:alice."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")  # clients that have not authenticated
