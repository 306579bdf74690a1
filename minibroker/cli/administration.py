"""The client and the requests shared by the commands.

They use `minibroker.client`. So they need no library with wheels for some systems only, every request is available, and
`consume` takes 25 MB where librdkafka fills 180; it prints 160,000 records a second of CPU, with librdkafka 370,000.
`topics list` takes 0.1 s of CPU and 20 MB.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minibroker.cli.connecting import Bootstrap, make_client, make_unreachable_error
from minibroker.cli.shared import make_not_found_error, make_operation_error

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

TopicPartition = tuple[str, int]
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
DEFAULT_CONFIG: Final = 5
SOURCES: Final = {  # by the number in DescribeConfigs
    1: "topic",
    2: "broker",
    3: "all brokers",
    4: "server.properties",
    DEFAULT_CONFIG: "default",
}


class ConfigRow(NamedTuple):
    """A line of a table of configs. Hidden values, and missing defaults, are None."""

    config: str
    value: str | None
    source: str
    default: str | None
    read_only: bool


@contextmanager
def connect_client(bootstrap: Bootstrap) -> Iterator[Client]:
    """Connect a client to these servers, one of which must answer at once. Its errors become click's."""
    from minibroker.client.client_errors import ClientError, SettingError

    try:
        with make_client(bootstrap) as client:
            try:
                client.connect_to_any_node()
            except ClientError as error:
                raise make_unreachable_error(bootstrap, str(error)) from None
            yield client
    except SettingError as error:
        raise click.UsageError(f"--client: {error}") from None
    except ClientError as error:
        raise make_operation_error(str(error)) from None


def delete_each_by_name(names: Iterable[str], delete: Callable[[str], None], as_json: bool) -> None:
    """Delete each of these names once, and print those deleted. Raises click.ClickException with the others."""
    from minibroker.client.client_errors import ClientError

    deleted, problems = [], []
    for name in dict.fromkeys(names):
        try:
            delete(name)
            deleted.append(name)
        except (ClientError, click.ClickException) as error:
            problems.append(str(error))
    if as_json:
        click.echo(json.dumps({"deleted": deleted}))
    elif deleted:
        click.echo(f"deleted {', '.join(deleted)}")
    if problems:
        raise make_operation_error("; ".join(problems))


def get_all_topics(client: Client) -> dict[str, Any]:
    """Return all topics by name, as Metadata describes them; a request for one by name could create it."""
    return {topic.name: topic for topic in client.retry(lambda: client.fetch_metadata(None)).topics}


def get_existing_topic(client: Client, name: str) -> Any:
    """Return the topic of this name, as Metadata describes it. Raises click.ClickException if there is none."""
    topics = get_all_topics(client)
    if name not in topics:
        raise make_not_found_error("topic", name, topics)
    return topics[name]


def check_config_answer(answer: Any, resource: str, names: Iterable[str]) -> None:
    """Raise click.ClickException if `answer` to a change of configs is an error; suggest a name for a misspelt one."""
    from minibroker.client.client_errors import ClientError, check_error_code
    from minibroker.protocol.errors import ErrorCode

    try:
        check_error_code(answer.error_code, resource, answer.error_message)
    except ClientError as error:
        if error.code != ErrorCode.INVALID_CONFIG:
            raise
        from minibroker.broker.configs.settings_table import TOPIC_SETTINGS
        from minibroker.suggestions import format_suggestion_of_similar_name

        unknown = [name for name in names if name not in TOPIC_SETTINGS]
        guess = format_suggestion_of_similar_name(unknown[0], TOPIC_SETTINGS) if unknown else ""
        raise make_operation_error(f"{error}{guess}") from None


def get_topic_configs(client: Client, name: str) -> list[Any]:
    """Return all configs of a topic by name, as DescribeConfigs describes them. Raises `ClientError`."""
    return get_configs(client, TOPIC_RESOURCE, name)


def get_configs(client: Client, resource_type: int, name: str, node: int | None = None) -> list[Any]:
    """Return all configs of a resource by name, as DescribeConfigs describes them.

    `node` is the broker to ask, None for any: only a broker itself knows all its own configs. Raises `ClientError`.
    """
    from minibroker.client.client_errors import check_error_code
    from minibroker.protocol.messages.configs import DescribeConfigsRequest

    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (answer,) = client.request(request, node, lowest=1).results  # version 0 has no sources of values
    check_error_code(answer.error_code, f"cannot get the configs of {name}", answer.error_message)
    return sorted(answer.configs, key=lambda entry: entry.name)


def make_config_row(entry: Any) -> ConfigRow:
    """Return a config as a line of a table."""
    told = [(entry.config_source, entry.value), *((each.source, each.value) for each in entry.synonyms)]
    default = next((value for source, value in told if source == DEFAULT_CONFIG), None)
    return ConfigRow(entry.name, entry.value, SOURCES.get(entry.config_source, "unknown"), default, entry.read_only)
