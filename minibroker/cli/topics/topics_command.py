"""`minibroker topics`: list, create, describe and delete topics of any Kafka, with our own client.

It prints tables for people, or one JSON document for programs. `topics_config` changes existing topics.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import (
    check_config_names_exist,
    connect_client,
    delete_each_by_name,
    get_all_topics,
    get_existing_topic,
    get_topic_configs,
)
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    WholeHelpGroup,
    make_assignments_option,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
    print_table,
)
from minibroker.cli.topics.topics_config import DYNAMIC_TOPIC_CONFIG, alter, config

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

DEFAULTS_VERSION: Final = 4  # of CreateTopics: the first in which the broker chooses the numbers (KIP-464)


class PartitionRow(NamedTuple):
    """A partition as `describe` shows it; offsets are None without a leader."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    earliest: int | None
    latest: int | None


@click.group(cls=WholeHelpGroup)
def topics() -> None:
    """List, create, describe, change and delete topics.

    \b
    Example:
        minibroker topics create orders --partitions 3 --config cleanup.policy=compact
    """


topics.add_command(alter)
topics.add_command(config)


@topics.command("list")
@add_connection_options
@make_json_option("Print a JSON array.")
def list_topics(bootstrap: Bootstrap, as_json: bool) -> None:
    """List the topics.

    \b
    Example:
        minibroker topics list --json
    """
    with connect_client(bootstrap) as client:
        found = get_all_topics(client)
    rows = [
        {"name": name, "partitions": len(topic.partitions), "replication_factor": _get_replication_factor(topic)}
        for name, topic in sorted(found.items())
    ]
    if as_json:
        click.echo(json.dumps(rows))
    else:
        print_table(["topic", "partitions", "replicas"], [list(row.values()) for row in rows])


@topics.command()
@click.argument("name", metavar="TOPIC")
@click.option(
    "--partitions", type=click.IntRange(1), help="The number of partitions.  [default: the broker's num.partitions]"
)
@click.option("--replication-factor", type=click.IntRange(1), help="[default: the broker's]")
@make_assignments_option("--config", "configs", "A topic config.", make_names_completer("topic_settings"))
@add_connection_options
@make_json_option("Print a JSON object.")
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
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.topics import CreateTopicsRequest

    of_topic = CreateTopicsRequest.CreatableTopic
    topic = of_topic(
        name=name,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        configs=[of_topic.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )
    lowest = 0 if partitions and replication_factor else DEFAULTS_VERSION
    with connect_client(bootstrap) as client:
        request = CreateTopicsRequest(topics=[topic], timeout_ms=client.settings.request_timeout_ms)
        try:
            (answer,) = client.request(request, client.fetch_controller_id(), lowest=lowest).topics
        except ClientError as error:
            if lowest and error.code == ErrorCode.UNSUPPORTED_VERSION:
                raise make_operation_error(
                    "brokers before 2.4 have no defaults: add --partitions and --replication-factor"
                ) from None
            raise
        check_config_names_exist(answer, f"cannot create {name}", (key for key, _ in configs))
    click.echo(json.dumps({"created": name}) if as_json else f"created {name}")


@topics.command()
@click.argument("name", metavar="TOPIC", shell_complete=make_names_completer("topics"))
@add_connection_options
@make_json_option("Print a JSON object.")
def describe(name: str, bootstrap: Bootstrap, as_json: bool) -> None:
    """Show a topic's partitions, with their first and next offsets, and the configs it overrides.

    Brokers before 1.1 do not return configs. With --json, they are null then.

    \b
    Example:
        minibroker topics describe orders
    """
    with connect_client(bootstrap) as client:
        topic = get_existing_topic(client, name)
        partitions, configs = _describe_partitions(client, topic), _get_overrides(client, name)
    if as_json:
        rows = [row._asdict() for row in partitions]
        click.echo(json.dumps({"name": name, "partitions": rows, "configs": configs}))
        return
    print_table(list(PartitionRow._fields), [list(row) for row in partitions])
    if configs is None:
        click.echo("minibroker: configs are not shown, as brokers before 1.1 do not tell them", err=True)
    elif configs:
        print_table(["config", "value"], [list(pair) for pair in configs.items()])


@topics.command()
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True, shell_complete=make_names_completer("topics"))
@add_connection_options
@make_json_option("Print a JSON object.")
def delete(names: tuple[str, ...], bootstrap: Bootstrap, as_json: bool) -> None:
    """Delete topics with all their records, without confirmation.

    \b
    Example:
        minibroker topics delete orders payments
    """
    with connect_client(bootstrap) as client:
        delete_each_by_name(names, lambda name: _delete_topic(client, name), as_json)


def _delete_topic(client: Client, name: str) -> None:
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.errors import ErrorCode
    from minibroker.protocol.messages.topics import DeleteTopicsRequest

    of_topic = DeleteTopicsRequest.DeleteTopicState
    request = DeleteTopicsRequest(
        topics=[of_topic(name=name)], topic_names=[name], timeout_ms=client.settings.request_timeout_ms
    )
    (answer,) = client.request(request, client.fetch_controller_id()).responses
    if answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise make_not_found_error("topic", name, get_all_topics(client))
    check_error_code(answer.error_code, f"cannot delete {name}", answer.error_message)


def _get_replication_factor(topic: Any) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)


def _describe_partitions(client: Client, topic: Any) -> list[PartitionRow]:
    from minibroker.client.partition_offsets import EARLIEST, LATEST, list_offsets

    led = [(topic.name, each.partition_index) for each in topic.partitions if each.leader_id >= 0]
    earliest, latest = (list_offsets(client, dict.fromkeys(led, where)) for where in (EARLIEST, LATEST))
    return [
        PartitionRow(
            each.partition_index,
            each.leader_id,
            each.replica_nodes,
            each.isr_nodes,
            earliest.get((topic.name, each.partition_index)),
            latest.get((topic.name, each.partition_index)),
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]


def _get_overrides(client: Client, name: str) -> dict[str, str | None] | None:
    """Return the configs that the topic overrides, or None if the broker does not tell them."""
    from minibroker.client.client_errors import ClientError
    from minibroker.protocol.errors import ErrorCode

    try:
        entries = get_topic_configs(client, name)
    except ClientError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    return {entry.name: entry.value for entry in entries if entry.config_source == DYNAMIC_TOPIC_CONFIG}
