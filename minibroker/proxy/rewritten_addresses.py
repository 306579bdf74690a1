"""The addresses in answers: clients get the proxy's in the place of those of the nodes.

Metadata, DescribeCluster               brokers
FindCoordinator                         the answer itself, coordinators (from version 4 on)
Produce, Fetch                          node_endpoints (KIP-951)
ShareFetch, ShareAcknowledge            node_endpoints
DescribeQuorum                          nodes, which have listeners (KIP-853)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from minibroker.protocol.apis import ApiKey, get_response_class
from minibroker.protocol.declare import Message

FIRST_VERSIONS: Final[dict[int, int]] = {
    ApiKey.METADATA: 0,
    ApiKey.FIND_COORDINATOR: 0,
    ApiKey.DESCRIBE_CLUSTER: 0,
    ApiKey.PRODUCE: 10,
    ApiKey.FETCH: 16,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
    ApiKey.DESCRIBE_QUORUM: 2,
}
LISTS: Final = ("brokers", "coordinators", "node_endpoints", "nodes")


class ShownAddress(NamedTuple):
    """The address that clients get for a node."""

    host: str
    port: int


ShowAddress = Callable[[str, int, int], ShownAddress]
"""Returns the proxy's address for a node's host, port and id."""


def has_addresses_in_answer(api_key: int, version: int) -> bool:
    """Return whether answers of this API and version may have addresses of nodes."""
    first = FIRST_VERSIONS.get(api_key)
    return first is not None and version >= first


class AnswerEndpoint(NamedTuple):
    """A struct of an answer with a host and a port, and the node's id."""

    struct: Any
    node_id: int


def list_endpoints(response: Message) -> list[AnswerEndpoint]:
    """Return the addresses of nodes in an answer."""
    return [each for each in _iterate_endpoints(response) if each.struct.host and each.struct.port > 0]


def rewrite_endpoints(endpoints: list[AnswerEndpoint], map_address: ShowAddress) -> None:
    """Replace the addresses of nodes in place by those that `map_address` returns."""
    for struct, node_id in endpoints:
        struct.host, struct.port = map_address(struct.host, struct.port, node_id)


def remove_unknown_versions(response: Any) -> bool:
    """Remove versions of future releases from an ApiVersions answer. Return whether there were any.

    Addresses in their answers could not be rewritten: a client would leave the proxy without a word.
    """
    found = False
    for api_key in response.api_keys:
        if api_key.api_key in FIRST_VERSIONS:
            newest = get_response_class(api_key.api_key).versions[-1]
            if api_key.max_version > newest >= api_key.min_version:
                api_key.max_version, found = newest, True
    return found


def _iterate_endpoints(response: Any) -> Iterator[AnswerEndpoint]:
    """Yield the addresses in an answer, also empty ones."""
    if hasattr(response, "host"):
        yield AnswerEndpoint(response, response.node_id)
    for name in LISTS:
        for each in getattr(response, name, ()):
            node_id = each.broker_id if hasattr(each, "broker_id") else each.node_id
            for struct in each.listeners if hasattr(each, "listeners") else (each,):
                yield AnswerEndpoint(struct, node_id)
