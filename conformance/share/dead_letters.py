"""The dead letter queue of a tortured share group (KIP-1191): how it gets one, and what is in it in the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.share.history import Letter
from conformance.wire.connection import Connection
from conformance.wire.requests import GROUP_RESOURCE, SET, asked, create_request, end_offset, fetch_request, topic
from minibroker.protocol.messages.cluster import UpdateFeaturesRequest
from minibroker.protocol.messages.configs import IncrementalAlterConfigsRequest
from minibroker.protocol.records.batch import iterate_batches
from minibroker.protocol.records.payload import iterate_records_of_batch

FIRST_WITH_DEAD_LETTERS = 2  # of share.version
CONFIGS = {"errors.deadletterqueue.group.enable": "true"}
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


def collect(connection: Connection, group: str, queue: str, partitions: int) -> None:
    """Give a group a dead letter queue that gets copies of the records."""
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="share.version", max_version_level=FIRST_WITH_DEAD_LETTERS)
    answer = connection.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == 0, answer
    assert connection.ask(create_request(topic(queue, partitions, configs=CONFIGS)), 7).topics[0].error_code == 0
    configs = {"errors.deadletterqueue.topic.name": queue, "errors.deadletterqueue.copy.record.enable": "true"}
    changes = [
        Resource.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in configs.items()
    ]
    resource = Resource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    (answer,) = connection.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert answer.error_code == 0, answer


def letters(address: str, queue: str, partitions: int) -> Iterator[Letter]:
    """Yield all dead letters, as far as the torture compares them."""
    with Connection(address) as connection:
        yield from map(_letter, written(connection, queue, partitions))


def written(connection: Connection, queue: str, partitions: int) -> Iterator[Any]:
    """Yield all records of a dead letter queue."""
    for partition in range(partitions):
        offset, end = 0, end_offset(connection, queue, partition)
        while offset < end:
            (answer,) = connection.ask(fetch_request({queue: [asked(partition, offset)]}), 12).responses
            for position, header in iterate_batches(data := bytes(answer.partitions[0].records)):
                offset = header.last_offset + 1
                yield from iterate_records_of_batch(data, position)


def _letter(record: Any) -> Letter:
    said = {name.removeprefix("__dlq.errors."): value.decode() for name, value in record.headers}
    return Letter(
        (int(said["partition"]), int(said["offset"])),
        int(said["delivery.count"]),
        None if record.value is None else bytes(record.value),
    )
