"""The text of the site's page apis.md, generated from `broker.requests.served` and `protocol.apis`.

`python3 -m docs.pages.apis` prints it; docs/conf.py writes it when the site is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from minibroker.broker.handlers.api_versions import OF_TELEMETRY, RELEASED
from minibroker.broker.requests.served import FAMILIES
from minibroker.protocol.apis import ApiKey, get_api_name

PREAMBLE: Final = """\
# APIs

The tables list all APIs of the broker's listener in Apache Kafka 4.4, by their keys on the wire. Versions begin at 0
everywhere; Kafka 4 has dropped some old ones. `minibroker show Produce 9` says what the fields of a version
are for.

Generated from `minibroker/broker/requests/served.py`, by `python3 -m docs.pages.apis`.
"""
NEWEST_OF_ALL: Final = 32767
SERVED_HEAD: Final = ("key", "API", "versions", "handler", "announced")
INTERNAL_HEAD: Final = ("key", "API", "why it is not served")
BETWEEN_CONTROLLERS: Final = "Controllers vote and replicate with it; the one controller is part of this process."
FROM_BROKERS: Final = "A broker asks its controller with it; here both are in one process, and no request is needed."
# The APIs of a controller's listener that the broker's does not have.
OF_CONTROLLERS: Final = {
    52: ("Vote", BETWEEN_CONTROLLERS),
    53: ("BeginQuorumEpoch", BETWEEN_CONTROLLERS),
    54: ("EndQuorumEpoch", BETWEEN_CONTROLLERS),
    56: ("AlterPartition", FROM_BROKERS),
    58: ("Envelope", FROM_BROKERS),
    59: ("FetchSnapshot", BETWEEN_CONTROLLERS),
    62: ("BrokerRegistration", FROM_BROKERS),
    63: ("BrokerHeartbeat", FROM_BROKERS),
    67: ("AllocateProducerIds", FROM_BROKERS),
    70: ("ControllerRegistration", BETWEEN_CONTROLLERS),
    73: ("AssignReplicasToDirs", FROM_BROKERS),
    82: ("UpdateRaftVoter", BETWEEN_CONTROLLERS),
}


def served_rows() -> Iterator[tuple[str, ...]]:
    """Yield the cells of each API that is served, under SERVED_HEAD."""
    families = {key: (family, versions) for family, keys in FAMILIES.items() for key, versions in keys.items()}
    for key, (family, versions) in sorted(families.items()):
        yield str(int(key)), get_api_name(key), versions, f"`handlers/{family}.py`", _list_announced_versions(key)


def markdown() -> str:
    """Return the text of the page."""
    internal = [(str(key), name, why) for key, (name, why) in OF_CONTROLLERS.items()]
    return (
        f"{PREAMBLE}\n## Served\n\n{_table(SERVED_HEAD, served_rows())}\n"
        f"## Of the controller's listener\n\n{_table(INTERNAL_HEAD, internal)}"
    )


def _list_announced_versions(key: ApiKey) -> str:
    if key in OF_TELEMETRY:
        return "with `client.telemetry.enable`"
    if key in RELEASED:
        return f"0-{RELEASED[key]}, all with `unstable.api.versions.enable`"
    return "always"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    print(markdown(), end="")
