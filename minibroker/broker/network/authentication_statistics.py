"""Counts of authentications, which `metrics` shows. They are those that Kafka has for each listener."""

from __future__ import annotations


class AuthenticationStatistics:
    """The authentications on a listener of a node, by TLS and SASL; those on one connection again count by themselves.

    A TLS handshake that is followed by SASL only counts if it fails.
    """

    __slots__ = ("expired", "failed", "reauthentication_failed", "reauthenticated", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.failed = 0
        self.reauthenticated = 0
        self.reauthentication_failed = 0
        self.expired = 0  # connections that were closed because they went on after the end of their session
