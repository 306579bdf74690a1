"""`minibroker brokers`: lists the brokers of any Kafka, and shows how their configs differ from the defaults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import BROKER_RESOURCE, ConfigRow, connect_client, get_configs, make_config_row
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_json_option,
    make_operation_error,
    print_table,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

YES: Final = "yes"
NO_FEATURES: Final = 3  # the first version of ApiVersions with features


class BrokerRow(NamedTuple):
    """A broker, as Metadata describes it; `release` is that whose requests it takes, None if none is like it."""

    broker: int
    address: str
    rack: str | None
    is_controller: bool
    release: str | None


class FeatureLevel(NamedTuple):
    """A feature of the cluster: the level in use (0: off), and those that the brokers know."""

    feature: str
    level: int
    lowest: int
    highest: int


@click.group(cls=WholeHelpGroup)
def brokers() -> None:
    """List and describe brokers.

    \b
    Example:
        minibroker brokers list
    """


@brokers.command("list")
@add_connection_options
@make_json_option("Print a JSON object.")
def list_brokers(bootstrap: Bootstrap, as_json: bool) -> None:
    """List the brokers, and the levels of the cluster's features.

    The release is the newest of Apache Kafka whose requests a broker takes. Brokers before 2.4 have no features.

    \b
    Example:
        minibroker brokers list --json
    """
    with connect_client(bootstrap) as client:
        cluster = client.retry(client.fetch_metadata)
        found = [_make_broker_row(client, each, cluster.controller_id) for each in cluster.brokers]
        features = _get_features(client)
    found.sort()
    if as_json:
        brokers = [each._asdict() for each in found]
        levels = [each._asdict() for each in features]
        click.echo(json.dumps({"cluster_id": cluster.cluster_id, "brokers": brokers, "features": levels}))
        return
    rows = [each._replace(is_controller=YES if each.is_controller else None) for each in found]  # type: ignore[arg-type]
    print_table(["broker", "address", "rack", "controller", "release"], rows)
    if features:
        click.echo()
        print_table(["feature", "level", "lowest", "highest"], features)
    if cluster.cluster_id is not None:
        click.echo(f"\ncluster id {cluster.cluster_id}")


def _make_broker_row(client: Client, broker: Any, controller: int) -> BrokerRow:
    from minibroker.cli.doctor.checks import guess_kafka_release
    from minibroker.client.client_errors import ClientError
    from minibroker.client.connection_settings import Address

    try:
        served = _get_api_versions(client, broker.node_id).api_keys
        release = guess_kafka_release({each.api_key: range(each.min_version, each.max_version + 1) for each in served})
    except ClientError as error:
        click.echo(f"minibroker: {error}", err=True)
        release = None
    return BrokerRow(
        broker.node_id, str(Address(broker.host, broker.port)), broker.rack, broker.node_id == controller, release
    )


def _get_features(client: Client) -> list[FeatureLevel]:
    answer = _get_api_versions(client, None)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return [
        FeatureLevel(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in sorted(answer.supported_features, key=lambda each: str(each.name))
    ]


def _get_api_versions(client: Client, node: int | None) -> Any:
    """Return the ApiVersions response of a node, or of any (None). Raises `ClientError`."""
    from minibroker.client.opening import VERSION
    from minibroker.protocol.messages.cluster import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="minibroker", client_software_version=VERSION)
    answer = client.request(request, node)
    client.check(answer.error_code, "ApiVersions", node)
    return answer


@brokers.command()
@click.argument("broker", type=click.IntRange(0), required=False)
@click.option("--all", "shows_all", is_flag=True, help="Show the configs that have their defaults, too.")
@add_connection_options
@make_json_option("Print a JSON array.")
def describe(broker: int | None, shows_all: bool, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show the configs of a broker that differ from the defaults, of the first broker unless one is named.

    Passwords are empty, as no broker returns them.

    \b
    Example:
        minibroker brokers describe 1
    """
    with connect_client(bootstrap) as client:
        nodes = client.fetch_node_ids()
        chosen = nodes[0] if broker is None else broker
        if chosen not in nodes:
            raise make_operation_error(f"there is no broker {chosen}, only {', '.join(map(str, nodes))}")
        rows = [make_config_row(entry) for entry in get_configs(client, BROKER_RESOURCE, str(chosen), chosen)]
    shown = [row for row in rows if shows_all or is_config_overridden(row)]
    if as_json:
        click.echo(json.dumps([row._asdict() for row in shown]))
    elif shown:
        print_table(ConfigRow._fields[:-1], [row[:-1] for row in shown])
    else:
        click.echo(f"all configs of broker {chosen} are defaults")


def is_config_overridden(row: ConfigRow) -> bool:
    """Return whether someone has set a config, to something else than its default."""
    return row.source != "default" and (row.value is None or row.value != row.default)
