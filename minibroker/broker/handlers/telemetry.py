"""GetTelemetrySubscriptions and PushTelemetry: clients get the list of metrics to send, and send them (KIP-714).

Behaviour: ApiVersions lists both only with client.telemetry.enable; Kafka lists them only with a metrics plugin.
Without it they are answered all the same. A client that sends a request before its interval is over gets
THROTTLING_QUOTA_EXCEEDED, unless it is the last push (terminating), or follows an error that asks for a new
subscription. Metrics that are not OTLP, or decompress to more than telemetry.max.bytes, are refused with
INVALID_RECORD.

Versions: there is only 0.
"""

from __future__ import annotations

from minibroker.broker.client_telemetry import ClientInstance
from minibroker.broker.delayed_operations import run_in_slices
from minibroker.broker.requests.context import RequestContext
from minibroker.broker.requests.served import handles
from minibroker.protocol.apis import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from minibroker.protocol.otlp import MalformedMetrics, iterate_data_points
from minibroker.protocol.records.compression import Compression, decompress_chunks
from minibroker.protocol.steps import Steps

MAX_BYTES = "telemetry.max.bytes"
ACCEPTED = [Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY]  # the first is preferred


@handles(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)
def get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    instance = context.cluster.telemetry.get_subscribing_instance(
        context.connection, context.client_id, request.client_instance_id
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=[int(codec) for codec in ACCEPTED],
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=context.cluster.settings[MAX_BYTES],
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


@handles(ApiKey.PUSH_TELEMETRY)
async def push_telemetry(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    instance = context.cluster.telemetry.find_or_make_pushing_instance(
        context.connection, context.client_id, request.client_instance_id
    )
    try:
        _check_push_request(context, instance, request)
        instance.last_error = ErrorCode.NONE
        if request.metrics:
            await run_in_slices(_store_pushed_metrics(context, instance, request))
    except KafkaError as error:
        instance.last_error = error.code
        raise
    return PushTelemetryResponse()


def _check_push_request(context: RequestContext, instance: ClientInstance, request: PushTelemetryRequest) -> None:
    """Raise KafkaError if a push must be refused. The order of the checks is Kafka's."""
    was_terminating, instance.terminating = instance.terminating, request.terminating
    if was_terminating:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client has pushed for the last time before")
    if not instance.check_and_record_push_request(context.cluster.clock.wall_ms()) and not request.terminating:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    if request.subscription_id != instance.subscription_id:
        raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    if request.compression_type not in tuple(Compression):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    if len(request.metrics) > context.cluster.settings[MAX_BYTES]:
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)


def _store_pushed_metrics(
    context: RequestContext, instance: ClientInstance, request: PushTelemetryRequest
) -> Steps[None]:
    """Decompress the metrics and, if telemetry is enabled, keep them. Raises KafkaError(INVALID_RECORD)."""
    telemetry, limit_bytes = context.cluster.telemetry, context.cluster.settings[MAX_BYTES]
    data = bytearray()
    try:
        for chunk in decompress_chunks(request.compression_type, bytes(request.metrics), limit_bytes):
            data += chunk
            yield
        if telemetry.is_enabled:
            yield from telemetry.store_pushed_data_points(instance, iterate_data_points(bytes(data)))
    except (KafkaError, MalformedMetrics) as error:
        raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
