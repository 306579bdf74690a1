"""`minibroker topics`: list, create, describe and delete topics of any Kafka, through confluent-kafka.

Tables for a person, one JSON document for a program; how existing ones are changed is in `topics_alter` and
`topics_config`. Nothing here knows how a broker does it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import click

from minibroker.cli.administration import (
    admin_client,
    all_topics,
    existing_topic,
    log_offsets,
    report_deleted,
    result,
    source_of,
    topic_configs,
)
from minibroker.cli.shared import (
    REQUEST_TIMEOUT_S,
    Bootstrap,
    assignments_option,
    client_options,
    help_if_alone,
    json_option,
    print_table,
)
from minibroker.cli.topics_alter import alter
from minibroker.cli.topics_config import config

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicMetadata

DYNAMIC_TOPIC_CONFIG = 1


class Partition(NamedTuple):
    """A partition as `describe` shows it; offsets are None where it has no leader."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    earliest: int | None
    latest: int | None


@click.group(invoke_without_command=True)
@click.pass_context
def topics(context: click.Context) -> None:
    """List, create, describe, change and delete topics.

    \b
    Example:
        minibroker topics create orders --partitions 3 --config cleanup.policy=compact
    """
    help_if_alone(context)


topics.add_command(alter)
topics.add_command(config)


@topics.command("list")
@client_options
@json_option("Print a JSON array.")
def list_topics(bootstrap: Bootstrap, as_json: bool) -> None:
    """List the topics.

    \b
    Example:
        minibroker topics list --json
    """
    found = all_topics(admin_client(bootstrap))
    rows = [
        {"name": name, "partitions": len(topic.partitions), "replication_factor": _replication_factor(topic)}
        for name, topic in sorted(found.items())
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["topic", "partitions", "replicas"], [list(row.values()) for row in rows])


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1), help="How many.  [default: the broker's num.partitions]")
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@assignments_option("--config", "configs", "A topic config.")
@client_options
@json_option("Print a JSON object.")
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[tuple[str, str], ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Create a topic.

    \b
    Example:
        minibroker topics create orders --partitions 3
    """
    admin = admin_client(bootstrap)
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(name, partitions or -1, replication_factor or -1, config=dict(configs))
    created = admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)
    result(created[name], f"cannot create {name}")
    click.echo(json.dumps({"created": name}) if as_json else f"created {name}")


@topics.command()
@click.argument("name")
@client_options
@json_option("Print a JSON object.")
def describe(name: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show a topic's partitions, with their first and next offsets, and the configs it overrides.

    \b
    Example:
        minibroker topics describe orders
    """
    admin = admin_client(bootstrap)
    topic = existing_topic(admin, name)
    partitions, configs = _partitions(admin, name, topic), _configs(admin, name)
    if as_json:
        rows = [row._asdict() for row in partitions]
        click.echo(json.dumps({"name": name, "partitions": rows, "configs": configs}))
        return
    print_table(list(Partition._fields), [list(row) for row in partitions])
    if configs:
        print_table(["config", "value"], [list(pair) for pair in configs.items()])


@topics.command()
@click.argument("names", nargs=-1, required=True)
@client_options
@json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete topics and all that is in them, without asking.

    \b
    Example:
        minibroker topics delete orders payments
    """
    admin = admin_client(bootstrap)
    answers = admin.delete_topics(list(dict.fromkeys(names)), request_timeout=REQUEST_TIMEOUT_S)
    report_deleted(answers, as_json)


def _replication_factor(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _partitions(admin: AdminClient, name: str, topic: TopicMetadata) -> list[Partition]:
    from confluent_kafka.admin import OffsetSpec

    led = [(name, index) for index, part in topic.partitions.items() if part.leader >= 0]
    earliest, latest = (log_offsets(admin, led, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    return [
        Partition(index, part.leader, part.replicas, part.isrs, earliest.get((name, index)), latest.get((name, index)))
        for index, part in sorted(topic.partitions.items())
    ]


def _configs(admin: AdminClient, name: str) -> dict[str, str | None]:
    """The configs that are the topic's own."""
    entries = topic_configs(admin, name)
    return {entry.name: entry.value for entry in entries if source_of(entry) == DYNAMIC_TOPIC_CONFIG}
