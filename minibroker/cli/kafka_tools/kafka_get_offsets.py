"""`kafka-get-offsets`: prints offsets of partitions, as `topic:partition:offset`."""

from __future__ import annotations

import click

from minibroker.cli.administration import connect_client, get_all_topics
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import make_server_options, select_matching_names
from minibroker.cli.shared import make_operation_error
from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

TIMES = {"latest": LATEST, "earliest": EARLIEST}


def parse_offset_timestamp(text: str) -> int:
    """Parse ms since 1970, -1 or `latest`, -2 or `earliest`. Raises click.BadParameter."""
    try:
        return TIMES[text] if text in TIMES else max(int(text), EARLIEST)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not latest, earliest or the ms since 1970") from None


@click.command("kafka-get-offsets")
@make_server_options("--broker-list")
@click.option("--topic", help="A regular expression, or several with commas.")
@click.option("--partitions", help="Numbers with commas.")
@click.option("--time", "timestamp", type=parse_offset_timestamp, default="latest")
@click.option("--exclude-internal-topics", is_flag=True)
def kafka_get_offsets(
    bootstrap: Bootstrap, topic: str | None, partitions: str | None, timestamp: int, exclude_internal_topics: bool
) -> None:
    """Print the offset of each partition at a time, nothing after the last colon for none."""
    wanted = None if partitions is None else {int(each) for each in partitions.split(",") if each.strip().isdecimal()}
    with connect_client(bootstrap) as client:
        topics = get_all_topics(client)
        names = select_matching_names(
            topic, (name for name, each in topics.items() if not (exclude_internal_topics and each.is_internal))
        )
        places = [
            (name, each.partition_index)
            for name in names
            for each in topics[name].partitions
            if each.leader_id >= 0 and (wanted is None or each.partition_index in wanted)
        ]
        if not places:
            raise make_operation_error("Could not match any topic-partitions with the specified filters")
        offsets = list_offsets(client, dict.fromkeys(places, timestamp))
    for name, index in sorted(places):
        offset = offsets[name, index]
        click.echo(f"{name}:{index}:{offset if offset >= 0 else ''}")
