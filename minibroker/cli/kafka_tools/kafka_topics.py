"""`kafka-topics`: lists, creates, describes, changes and deletes topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.administration import DEFAULT_CONFIG, connect_client, get_all_topics, get_topic_configs
from minibroker.cli.connecting import Bootstrap
from minibroker.cli.kafka_tools.tool_options import (
    choose_action,
    make_server_options,
    run_command,
    select_matching_names,
)
from minibroker.cli.shared import PARTITION_COUNT, REPLICATION_FACTOR, make_operation_error
from minibroker.cli.topics import topics_command
from minibroker.cli.topics.topics_command import alter
from minibroker.protocol.primitives import format_uuid

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

COLLIDING: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


@click.command("kafka-topics")
@make_server_options()
@click.option("--list", "lists", is_flag=True)
@click.option("--create", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--alter", "alters", is_flag=True)
@click.option("--topic", help="A name; for --list, --describe and --delete a regular expression.")
@click.option("--partitions", type=PARTITION_COUNT)
@click.option("--replication-factor", type=REPLICATION_FACTOR)
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True)
@click.option("--if-exists", is_flag=True)
@click.option("--if-not-exists", is_flag=True)
@click.option("--exclude-internal", is_flag=True)
def kafka_topics(
    bootstrap: Bootstrap, lists: bool, create: bool, describe: bool, delete: bool, alters: bool, **options: Any
) -> None:
    """List, create, describe, change and delete topics."""
    action = choose_action({"list": lists, "create": create, "describe": describe, "delete": delete, "alter": alters})
    if action in ("create", "delete", "alter") and options["topic"] is None:
        raise click.UsageError(f"--{action} needs --topic")
    if action == "create":
        _create_topic(bootstrap, **options)
        return
    with connect_client(bootstrap) as client:
        topics = get_all_topics(client)
        shown = (name for name, each in topics.items() if not (options["exclude_internal"] and each.is_internal))
        names = select_matching_names(options["topic"], shown)
        if options["topic"] is not None and not names and action != "list" and not options["if_exists"]:
            raise make_operation_error(f"Topic '{options['topic']}' does not exist as expected")
        if action == "list":
            for name in names:
                click.echo(name)
        elif action == "describe":
            for name in names:
                _describe_topic(client, topics[name])
    if action == "delete" and names:
        run_command(topics_command.delete, names, bootstrap)
    elif action == "alter":
        _add_partitions_to_topics(bootstrap, names, options["partitions"])


def _create_topic(
    bootstrap: Bootstrap,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    **_: Any,
) -> None:
    if "." in topic or "_" in topic:
        click.echo(COLLIDING)
    with connect_client(bootstrap) as client:
        if if_not_exists and topic in get_all_topics(client):
            return
    numbers = (("--partitions", partitions), ("--replication-factor", replication_factor))
    arguments = [text for name, number in numbers if number is not None for text in (name, str(number))]
    arguments += [text for each in configs for text in ("--config", each)]
    run_command(topics_command.create, [*arguments, "--", topic], bootstrap)
    click.echo(f"Created topic {topic}.")


def _add_partitions_to_topics(bootstrap: Bootstrap, names: list[str], partitions: int | None) -> None:
    if partitions is None:
        raise click.UsageError("--alter needs --partitions; kafka-configs changes configs")
    for name in names:
        run_command(alter, ["--partitions", str(partitions), "--", name], bootstrap)


def _describe_topic(client: Client, topic: Any) -> None:
    """Print a topic and its partitions, as Kafka's tool does."""
    configs = [each for each in get_topic_configs(client, topic.name) if each.config_source != DEFAULT_CONFIG]
    replicas = max((len(each.replica_nodes) for each in topic.partitions), default=0)
    told = {
        "Topic": topic.name,
        "TopicId": format_uuid(topic.topic_id),
        "PartitionCount": len(topic.partitions),
        "ReplicationFactor": replicas,
        "Configs": ",".join(f"{each.name}={each.value}" for each in configs),
    }
    click.echo(_format_fields(told))
    for partition in sorted(topic.partitions, key=lambda each: each.partition_index):
        told = {
            "Topic": topic.name,
            "Partition": partition.partition_index,
            "Leader": partition.leader_id if partition.leader_id >= 0 else "none",
            "Replicas": ",".join(map(str, partition.replica_nodes)),
            "Isr": ",".join(map(str, partition.isr_nodes)),
            "Elr": "N/A",  # Metadata does not have them
            "LastKnownElr": "N/A",
        }
        click.echo(f"\t{_format_fields(told)}")


def _format_fields(fields: dict[str, object]) -> str:
    return "\t".join(f"{name}: {value}" for name, value in fields.items())
