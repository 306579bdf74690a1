"""`minibroker topics alter`: how many partitions a topic has.

Its configs are changed in `topics_config`.
"""

from __future__ import annotations

import json

import click

from minibroker.cli.administration import TIMEOUT_MS, connected, existing_topic
from minibroker.cli.shared import Bootstrap, client_options, json_option


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
    from minibroker.client.errors import check
    from minibroker.protocol.messages.topics import CreatePartitionsRequest

    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    with connected(bootstrap) as client:
        before = len(existing_topic(client, name).partitions)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
        (answer,) = client.request(request, client.controller()).results
        check(answer.error_code, f"cannot alter {name}", answer.error_message)
    if as_json:
        click.echo(json.dumps({"altered": name, "partitions": partitions, "before": before}))
    else:
        click.echo(f"{name} has {partitions} partitions, and had {before}")
