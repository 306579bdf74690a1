"""What the commands that manage topics and groups share: confluent-kafka's admin client, and its errors in one line.

What is asked of it, and how the answer is shown, is each command's business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.shared import (
    CLIENT_ID,
    REQUEST_TIMEOUT_S,
    Bootstrap,
    client_config,
    failure,
    reason,
    require_connection,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, ConfigEntry, OffsetSpec, TopicMetadata

    from minibroker.client.blocking import Client

TopicPartition = tuple[str, int]
DEFAULTS: Final = {"default.api.timeout.ms": f"{REQUEST_TIMEOUT_S * 1000:.0f}"}


@contextmanager
def connected(bootstrap: Bootstrap) -> Iterator[Client]:
    """A client of these servers, which must be reachable. Its errors become click's: of a setting, or of a request."""
    require_connection(bootstrap.servers)
    from minibroker.client.blocking import Client
    from minibroker.client.errors import ClientError, SettingError
    from minibroker.client.settings import ClientSettings

    try:
        settings = {**DEFAULTS, "bootstrap.servers": bootstrap.servers, **dict(bootstrap.settings)}
        with Client(ClientSettings(settings, CLIENT_ID)) as client:
            yield client
    except SettingError as error:
        raise click.UsageError(f"--client: {error}") from None
    except ClientError as error:
        raise failure(str(error)) from None


def admin_client(bootstrap: Bootstrap) -> AdminClient:
    """A client of these servers. Raises click.ClickException: nobody listens there, or a setting is none."""
    config = client_config(bootstrap)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(config)
    except KafkaException as error:
        raise click.UsageError(reason(error)) from None


def result(future: Future[Any], what: str) -> Any:
    """Return the future's result. Raises click.ClickException that begins with `what`."""
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_TIMEOUT_S)
    except (KafkaException, ValueError) as error:
        raise failure(f"{what}: {reason(error)}") from None
    except TimeoutError:
        raise failure(f"{what}: no answer within {REQUEST_TIMEOUT_S:.0f} s") from None


def report_deleted(answers: Mapping[str, Future[Any]], as_json: bool) -> None:
    """Print which of those with these names were deleted. Raises click.ClickException that tells of the others."""
    deleted, problems = [], []
    for name, future in answers.items():
        try:
            result(future, f"cannot delete {name}")
            deleted.append(name)
        except click.ClickException as error:
            problems.append(error.message)
    if as_json:
        click.echo(json.dumps({"deleted": deleted}))
    elif deleted:
        click.echo(f"deleted {', '.join(deleted)}")
    if problems:
        raise failure("; ".join(problems))


def all_topics(admin: AdminClient) -> dict[str, TopicMetadata]:
    """The topics by name. All are asked for: asking for one that is not there could create it."""
    from confluent_kafka import KafkaException

    try:
        return admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    except KafkaException as error:
        raise failure(f"cannot list the topics: {reason(error)}") from None


def existing_topic(admin: AdminClient, name: str) -> TopicMetadata:
    """The topic of this name. Raises click.ClickException if there is none."""
    topic = all_topics(admin).get(name)
    if topic is None:
        raise failure(f"there is no topic {name}")
    return topic


def topic_configs(admin: AdminClient, name: str) -> list[ConfigEntry]:
    """All configs of a topic, by name. Raises click.ClickException."""
    from confluent_kafka.admin import ConfigResource

    asked = [ConfigResource(ConfigResource.Type.TOPIC, name)]
    # The dict must outlive the call: confluent-kafka fills in the futures it holds.
    answers = admin.describe_configs(asked, request_timeout=REQUEST_TIMEOUT_S)
    (future,) = answers.values()
    entries: dict[str, ConfigEntry] = result(future, f"cannot get the configs of {name}")
    return [entry for _, entry in sorted(entries.items())]


def source_of(entry: ConfigEntry) -> int:
    """Where the value comes from, by the number that DescribeConfigs gives."""
    source: Any = entry.source  # a number, for which confluent-kafka's types have an enum
    return int(source)


def log_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """Return each partition's offset by ListOffsets. Raises click.ClickException if one is missing."""
    from confluent_kafka import TopicPartition

    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    answers = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    return {
        (each.topic, each.partition): result(future, f"cannot get the offsets of {each.topic}").offset
        for each, future in answers.items()
    }
