"""What the commands that manage topics and groups share: confluent-kafka's admin client, and its errors in one line.

What is asked of it, and how the answer is shown, is each command's business.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from minibroker.cli.shared import REQUEST_TIMEOUT_S, client_config, failure, reason

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

TopicPartition = tuple[str, int]


def admin_client(servers: str, client: tuple[tuple[str, str], ...]) -> AdminClient:
    """A client of these servers. Raises click.ClickException: nobody listens there, or a setting is none."""
    config = client_config(servers, client)
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        return AdminClient(config)
    except KafkaException as error:
        raise click.UsageError(reason(error)) from None


def result(future: Future[Any], what: str) -> Any:
    """What the future becomes. Raises click.ClickException that begins with `what`."""
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_TIMEOUT_S)
    except (KafkaException, ValueError) as error:
        raise failure(f"{what}: {reason(error)}") from None
    except TimeoutError:
        raise failure(f"{what}: no answer within {REQUEST_TIMEOUT_S:.0f} s") from None


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


def log_offsets(
    admin: AdminClient, partitions: Iterable[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """What ListOffsets says of each partition. Raises click.ClickException if it does not say it of all."""
    from confluent_kafka import TopicPartition

    asked = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if not asked:
        return {}
    answers = admin.list_offsets(asked, request_timeout=REQUEST_TIMEOUT_S)
    return {
        (each.topic, each.partition): result(future, f"cannot get the offsets of {each.topic}").offset
        for each, future in answers.items()
    }
