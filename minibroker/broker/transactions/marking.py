"""Markers at the leaders of partitions: what WriteTxnMarkers does, for the handler and for the coordinator.

The coordinator decides which markers to write; `storage` tracks their effect on the log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.metadata.leaders import get_led_partition
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.steps import Steps, apply_to_items_in_steps
from minibroker.storage.producers.transaction_markers import TransactionMarker, make_marker_batch

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.metadata.nodes import Node
    from minibroker.broker.metadata.partitions import Partition

MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = MarkerResult.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult


class EndedTransaction:
    """A decided transaction, with the batch that ends it in each partition, one after the other.

    `transaction_version` is that of the client that ended it.
    """

    __slots__ = ("batch", "header", "marker", "transaction_version")

    def __init__(
        self, cluster: Cluster, producer: tuple[int, int], marker: TransactionMarker, transaction_version: int
    ) -> None:
        """`producer` is its id and epoch."""
        self.marker = marker
        self.transaction_version = transaction_version
        self.batch = memoryview(make_marker_batch(*producer, marker, cluster.clock.wall_ms()))
        self.header = read_header(self.batch)


def write_markers(cluster: Cluster, node: Node, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Write the markers to the partitions that `node` leads; the response has a result for each partition."""
    response = WriteTxnMarkersResponse()
    for wanted in request.markers:
        result = MarkerResult(producer_id=wanted.producer_id)
        response.markers.append(result)
        marker = TransactionMarker(wanted.transaction_result, wanted.coordinator_epoch)
        producer = wanted.producer_id, wanted.producer_epoch
        ending = EndedTransaction(cluster, producer, marker, wanted.transaction_version)
        for topic in wanted.topics:
            partitions = yield from apply_to_items_in_steps(
                partial(_write_marker_and_answer, cluster, node, ending, topic.name), topic.partition_indexes
            )
            result.topics.append(TopicResult(name=topic.name, partitions=partitions))
            yield
        yield
    return response


def _write_marker_and_answer(
    cluster: Cluster, node: Node, ending: EndedTransaction, topic: str, index: int
) -> PartitionResult:
    return PartitionResult(
        partition_index=index, error_code=write_marker_or_return_error(cluster, node, ending, topic, index)
    )


def write_marker_or_return_error(
    cluster: Cluster, node: Node, ending: EndedTransaction, topic: str, index: int
) -> ErrorCode:
    """Write the marker to a partition, if `node` leads it; return NONE, or the error code."""
    try:
        _append_marker(cluster, get_led_partition(node.node_id, cluster.image.topics.get(topic), index), ending)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _append_marker(cluster: Cluster, partition: Partition, ending: EndedTransaction) -> None:
    partition.check_min_isr()
    header, committed = ending.header, ending.marker.committed
    partition.log.producers.check_marker_may_end_transaction(header, ending.marker, ending.transaction_version)
    partition.append_batches(cluster.turn, ending.batch, [header])  # which sets offset and epoch in it, and writes it
    for watcher in cluster.watchers:
        watcher.on_transaction_ended(partition.topic.name, partition.index, header.producer_id, committed=committed)
