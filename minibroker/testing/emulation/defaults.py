"""The defaults of settings that differed in older releases, as far as clients notice them. A user may override them.

The sources are `kafka.server.Defaults` in the releases around each change (conformance/emulation compares it with this
table up to 2.5), and the KIPs.
"""

from __future__ import annotations

from typing import Final

from minibroker.testing.emulation.releases import is_since

NO_BOUND: Final = str((1 << 63) - 1)
# Of each setting: (the release before which it holds, the default), the oldest first. From the last on it is today's.
UNTIL: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    # The format of topics (KIP-32, KIP-98): a release writes no newer one than its own.
    "log.message.format.version": (("0.10.0", "0.9.0"), ("0.11", "0.10.2")),
    "message.max.bytes": (("2.5", "1000012"),),  # KAFKA-4203
    "group.max.session.timeout.ms": (("0.10.0", "30000"), ("2.3", "300000")),
    "offsets.retention.minutes": (("2.0", "1440"),),  # KIP-186
    "unclean.leader.election.enable": (("0.11", "true"),),  # KIP-106
    "transaction.partition.verification.enable": (("3.6", "false"),),  # KIP-890
    "log.message.timestamp.after.max.ms": (("4.0", NO_BOUND),),  # KIP-1030
}


def settings_of(release: str) -> dict[str, str]:
    """Return the defaults of a release that are not today's."""
    found = {}
    for name, changes in UNTIL.items():
        value = next((value for until, value in changes if not is_since(release, until)), None)
        if value is not None:
            found[name] = value
    return found
