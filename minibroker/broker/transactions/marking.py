"""Markers at the leaders of partitions: what WriteTxnMarkers does, for the handler and for the coordinator.

The coordinator decides which markers to write; `storage` tracks their effect on the log.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.metadata.leaders import led_partition
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from minibroker.protocol.records.batch import read_header
from minibroker.protocol.steps import Steps, each
from minibroker.storage.producers.transaction_markers import Marker, marker_batch

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster, Node

Wanted = WriteTxnMarkersRequest.WritableTxnMarker
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = Result.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult


def write_markers(cluster: Cluster, node: Node, request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """Write the markers to the partitions that `node` leads; the response has a result for each partition."""
    response = WriteTxnMarkersResponse()
    for wanted in request.markers:
        result = Result(producer_id=wanted.producer_id)
        response.markers.append(result)
        for topic in wanted.topics:
            partitions = yield from each(partial(_result, cluster, node, wanted, topic.name), topic.partition_indexes)
            result.topics.append(TopicResult(name=topic.name, partitions=partitions))
            yield
        yield
    return response


def _result(cluster: Cluster, node: Node, wanted: Wanted, topic: str, index: int) -> PartitionResult:
    return PartitionResult(partition_index=index, error_code=_written(cluster, node, wanted, topic, index))


def _written(cluster: Cluster, node: Node, wanted: Wanted, topic: str, index: int) -> ErrorCode:
    try:
        _write(cluster, node, wanted, topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _write(cluster: Cluster, node: Node, wanted: Wanted, topic: str, index: int) -> None:
    partition = led_partition(node.node_id, cluster.image.topics.get(topic), index)
    partition.check_in_sync()
    marker = Marker(wanted.transaction_result, wanted.coordinator_epoch)
    batch = memoryview(marker_batch(wanted.producer_id, wanted.producer_epoch, marker, cluster.clock.wall_ms()))
    header = read_header(batch)
    partition.log.producers.check_marker(header, marker, wanted.transaction_version)
    partition.append(cluster.turn, batch, [header])
    for watcher in cluster.watchers:
        watcher.transaction_ended(topic, index, wanted.producer_id, committed=wanted.transaction_result)
