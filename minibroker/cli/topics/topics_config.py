"""`minibroker topics config` and `alter`: show and change a topic's configs, and add partitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.administration import TIMEOUT_MS, TOPIC_RESOURCE, connected, existing_topic, topic_configs
from minibroker.cli.connecting import Bootstrap, client_options
from minibroker.cli.shared import assignments_option, json_option, print_table

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

DEFAULT_CONFIG = 5
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
SOURCES: Final = {  # by the number in DescribeConfigs
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "server.properties",
    5: "default",
}


class Config(NamedTuple):
    """A line of the table. Hidden values, and missing defaults, are None."""

    config: str
    value: str | None
    source: str
    default: str | None
    read_only: bool


@click.command()
@click.argument("name")
@assignments_option("--set", "assignments", "A config to set.")
@click.option(
    "--delete", "deleted", metavar="NAME", multiple=True, help="A config to reset to its default. Can be repeated."
)
@client_options
@json_option("Print a JSON array, or what was changed as a JSON object.")
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
    _check_change([key for key, _ in assignments], deleted)
    with connected(bootstrap) as client:
        existing_topic(client, name)
        if not changed and not deleted:
            _show([_row(entry) for entry in topic_configs(client, name)], as_json)
            return
        _change(client, name, changed, deleted)
    if as_json:
        click.echo(json.dumps({"name": name, "set": changed, "deleted": list(deleted)}))
        return
    for key, value in changed.items():
        click.echo(f"{name}: {key} is {value}")
    for key in deleted:
        click.echo(f"{name}: {key} is no longer the topic's own")


def _check_change(assigned: list[str], deleted: tuple[str, ...]) -> None:
    """Raises click.UsageError for a config that is given twice."""
    given = [*assigned, *deleted]
    twice = next((key for key in given if given.count(key) > 1), None)
    if twice is not None:
        raise click.UsageError(f"{twice} is given twice")


def _row(entry: Any) -> Config:
    said = [(entry.config_source, entry.value), *((each.source, each.value) for each in entry.synonyms)]
    defaults = [value for source, value in said if source == DEFAULT_CONFIG]
    default = defaults[0] if defaults else _documented_default(entry.name)
    return Config(entry.name, entry.value, SOURCES.get(entry.config_source, "unknown"), default, entry.read_only)


def _documented_default(name: str) -> str | None:
    """Return Apache Kafka's default for a config whose default is a setting in hours, which brokers do not report."""
    from minibroker.broker.configs.settings import Settings

    return next((entry.value for entry in Settings({}).describe_topic({}) if entry.name == name), None)


def _show(rows: list[Config], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([row._asdict() for row in rows]))
    else:
        print_table(Config._fields[:-1], [row[:-1] for row in rows])


def _change(client: Client, name: str, changed: dict[str, str], deleted: tuple[str, ...]) -> None:
    """Change the configs. Raises `ClientError` if the broker rejects it; then nothing is changed."""
    from minibroker.client.client_errors import check
    from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest

    of_resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [(key, SET, value) for key, value in changed.items()] + [(key, DELETE, None) for key in deleted]
    configs = [of_resource.AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = of_resource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.request(request, client.controller()).responses
    check(answer.error_code, f"cannot change the configs of {name}", answer.error_message)


@click.command()
@click.argument("name")
@click.option(
    "--partitions", type=click.IntRange(1), required=True, help="The new number of partitions, larger than now."
)
@client_options
@json_option("Print a JSON object.")
def alter(name: str, partitions: int, bootstrap: Bootstrap, as_json: bool) -> None:
    """Add partitions to a topic. Existing records stay in their partitions.

    \b
    Example:
        minibroker topics alter orders --partitions 6
    """
    from minibroker.client.client_errors import check
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
