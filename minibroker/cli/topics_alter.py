"""`minibroker topics alter`: how many partitions a topic has, through confluent-kafka.

Its configs are changed in `topics_config`.
"""

from __future__ import annotations

import json

import click

from minibroker.cli.administration import admin_client, existing_topic, result
from minibroker.cli.shared import REQUEST_TIMEOUT_S, Bootstrap, client_options, json_option


@click.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), required=True, help="How many it is to have: more than now.")
@client_options
@json_option("Print a JSON object.")
def alter(name: str, partitions: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Give a topic more partitions. Records that are there stay where they are.

    \b
    Example:
        minibroker topics alter orders --partitions 6
    """
    admin = admin_client(bootstrap)
    before = len(existing_topic(admin, name).partitions)
    from confluent_kafka.admin import NewPartitions

    answers = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=REQUEST_TIMEOUT_S)
    result(answers[name], f"cannot alter {name}")
    if as_json:
        click.echo(json.dumps({"altered": name, "partitions": partitions, "before": before}))
    else:
        click.echo(f"{name} has {partitions} partitions, and had {before}")
