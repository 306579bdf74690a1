"""`minibroker topics`: list, create, describe, change and delete topics of any Kafka, with our own client.

It prints tables for people, or one JSON document for programs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import (
    TOPIC_RESOURCE,
    ConfigRow,
    check_config_answer,
    connect_client,
    delete_each_by_name,
    get_all_topics,
    get_existing_topic,
    get_topic_configs,
    make_config_row,
)
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.shared import (
    PARTITION_COUNT,
    REPLICATION_FACTOR,
    WholeHelpGroup,
    make_assignments_option,
    make_json_option,
    make_names_completer,
    make_not_found_error,
    make_operation_error,
    print_table,
)

if TYPE_CHECKING:
    from minibroker.client.blocking import Client


DYNAMIC_TOPIC_CONFIG: Final = 1
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
DEFAULTS_VERSION: Final = 4  # of CreateTopics: the first in which the broker chooses the numbers (KIP-464)


@click.group(cls=WholeHelpGroup)
def topics() -> None:
    """List, create, describe, change and delete topics.

    \b
    Example:
        minibroker topics create orders --partitions 3 --config cleanup.policy=compact
    """


@topics.command()
@click.argument("name", metavar="TOPIC", shell_complete=make_names_completer("topics"))
@make_assignments_option("--set", "assignments", "A config to set.", make_names_completer("topic_settings"))
@click.option(
    "--delete",
    "deleted",
    metavar="NAME",
    multiple=True,
    help="A config to reset to its default. Can be repeated.",
    shell_complete=make_names_completer("topic_settings"),
)
@add_connection_options
@make_json_option("Print a JSON array, or what was changed as a JSON object.")
def config(
    name: str,
    assignments: tuple[tuple[str, str], ...],
    deleted: tuple[str, ...],
    bootstrap: Bootstrap,
    as_json: bool,
) -> None:
    """Show a topic's configs with their sources and defaults, or change some of them, all or none.

    \b
    Example:
        minibroker topics config orders --set retention.ms=3600000 --delete cleanup.policy
    """
    changed = dict(assignments)
    _check_no_config_is_given_twice([key for key, _ in assignments], deleted)
    with connect_client(bootstrap) as client:
        get_existing_topic(client, name)
        if not changed and not deleted:
            _show_configs([_make_config_row(entry) for entry in get_topic_configs(client, name)], as_json)
            return
        known = {entry.name for entry in get_topic_configs(client, name)}
        unknown = next((key for key in deleted if key not in known), None)
        if unknown is not None:
            from minibroker.suggestions import format_suggestion_of_similar_name

            raise make_operation_error(
                f"{name} has no config {unknown}{format_suggestion_of_similar_name(unknown, sorted(known))}"
            )
        _change_configs(client, name, changed, deleted)
        kept = _find_configs_to_delete(client, name, deleted)
    if as_json:
        gone = [key for key in deleted if key not in kept]
        click.echo(json.dumps({"name": name, "set": changed | kept, "deleted": gone}))
        return
    for key, value in changed.items():
        click.echo(f"{name}: {key} is {value}")
    for key in deleted:
        told = f"is now {kept[key]}: once set, it cannot be unset" if key in kept else "is no longer set"
        click.echo(f"{name}: {key} {told}")


def _find_configs_to_delete(client: Client, name: str, deleted: tuple[str, ...]) -> dict[str, str | None]:
    """Return those of the configs to delete that are set for the topic, with their values."""
    entries = get_topic_configs(client, name) if deleted else []
    return {
        entry.name: entry.value
        for entry in entries
        if entry.name in deleted and entry.config_source == DYNAMIC_TOPIC_CONFIG
    }


def _check_no_config_is_given_twice(assigned_names: list[str], deleted: tuple[str, ...]) -> None:
    """Check that no config is given twice. Raises click.UsageError."""
    given = [*assigned_names, *deleted]
    twice = next((key for key in given if given.count(key) > 1), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is given twice")


def _make_config_row(entry: Any) -> ConfigRow:
    row = make_config_row(entry)
    return row if row.default is not None else row._replace(default=_get_documented_default(entry.name))


def _get_documented_default(name: str) -> str | None:
    """Return Apache Kafka's default for a config whose default is a setting in hours, which brokers do not report."""
    from minibroker.broker.configs.settings import Settings

    return next((entry.value for entry in Settings({}).describe_topic_configs({}) if entry.name == name), None)


def _show_configs(rows: list[ConfigRow], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows]))
    else:
        print_table(ConfigRow._fields[:-1], [row[:-1] for row in rows])


def _change_configs(client: Client, name: str, changed: dict[str, str], deleted: tuple[str, ...]) -> None:
    """Change the configs. Raises `ClientError` if the broker rejects it; then nothing is changed."""
    from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest

    of_resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [(key, SET, value) for key, value in changed.items()] + [(key, DELETE, None) for key in deleted]
    configs = [of_resource.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = of_resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.request(request, client.fetch_controller_id()).responses
    check_config_answer(answer, f"cannot change the configs of {name}", changed)


@topics.command()
@click.argument("name", metavar="TOPIC", shell_complete=make_names_completer("topics"))
@click.option(
    "--partitions", type=PARTITION_COUNT, required=True, help="The new number of partitions, larger than now."
)
@add_connection_options
@make_json_option("Print a JSON object.")
def alter(name: str, partitions: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Add partitions to a topic. Existing records stay in their partitions.

    \b
    Example:
        minibroker topics alter orders --partitions 6
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.topics import CreatePartitionsRequest

    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=partitions, assignments=None)
    with connect_client(bootstrap) as client:
        before = len(get_existing_topic(client, name).partitions)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=client.settings.request_timeout_ms)
        (answer,) = client.request(request, client.fetch_controller_id()).results
        check_error_code(answer.error_code, f"cannot alter {name}", answer.error_message)
    if as_json:
        click.echo(json.dumps({"altered": name, "partitions": partitions, "before": before}))
    else:
        click.echo(f"{name} has {partitions} partitions, and had {before}")


class PartitionRow(NamedTuple):
    """A partition as `describe` shows it; offsets are None without a leader."""

    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    earliest: int | None
    latest: int | None


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
    "--partitions", type=PARTITION_COUNT, help="The number of partitions.  [default: the broker's num.partitions]"
)
@click.option("--replication-factor", type=REPLICATION_FACTOR, help="[default: the broker's]")
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
        check_config_answer(answer, f"cannot create {name}", (key for key, _ in configs))
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
