"""`kafka-cluster cluster-id`: prints the id of the cluster."""

from __future__ import annotations

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import make_server_options


@click.group("kafka-cluster")
def kafka_cluster() -> None:
    """Tell about the cluster."""


@kafka_cluster.command("cluster-id")
@make_server_options("--config")
def cluster_id(bootstrap: Bootstrap) -> None:
    """Print the id of the cluster."""
    with connect_client(bootstrap) as client:
        click.echo(f"Cluster ID: {client.fetch_metadata().cluster_id}")
