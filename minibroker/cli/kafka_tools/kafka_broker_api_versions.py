"""`kafka-broker-api-versions`: prints which requests each broker takes, in which versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import make_server_options
from minibroker.client.opening import VERSION
from minibroker.protocol.apis import ApiKey, get_api_name, get_request_class
from minibroker.protocol.messages.cluster import ApiVersionsRequest

KNOWN: Final = frozenset(map(int, ApiKey))


@click.command("kafka-broker-api-versions")
@make_server_options()
def kafka_broker_api_versions(bootstrap: Bootstrap) -> None:
    """Print which requests each broker takes, in which versions, and the newest one that is used here."""
    request = ApiVersionsRequest(client_software_name="minibroker", client_software_version=VERSION)
    with connect_client(bootstrap) as client:
        brokers = sorted(client.retry(client.fetch_metadata).brokers, key=lambda each: each.node_id)
        for each in brokers:
            answer = client.request(request, each.node_id)
            client.check(answer.error_code, "ApiVersions", each.node_id)
            click.echo(f"{each.host}:{each.port} (id: {each.node_id} rack: {each.rack or 'null'} isFenced: false) -> (")
            click.echo(",\n".join(_iterate_api_lines(answer.api_keys)))
            click.echo(")")


def _iterate_api_lines(apis: Iterable[Any]) -> Iterator[str]:
    for each in sorted(apis, key=lambda each: each.api_key):
        is_one = each.min_version == each.max_version
        versions = str(each.min_version) if is_one else f"{each.min_version} to {each.max_version}"
        if each.api_key in KNOWN:
            usable = min(each.max_version, get_request_class(each.api_key).versions[-1])
            yield f"\t{get_api_name(each.api_key)}({each.api_key}): {versions} [usable: {usable}]"
        else:
            yield f"\tUNKNOWN({each.api_key}): {versions} [usable: UNKNOWN]"
