"""Metrics that clients send to brokers (KIP-714).

The config resource "client metrics" says which metrics they send.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Uuid, field, int8, int16, int32


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    """Asks which metrics the client should send."""

    client_instance_id: Uuid = field()


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    """Answers with the metrics, their interval, the accepted compression and the client's instance id."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    client_instance_id: Uuid = field()
    subscription_id: int32 = field()
    accepted_compression_types: list[int8] = field()
    push_interval_ms: int32 = field()
    telemetry_max_bytes: int32 = field()
    delta_temporality: bool = field()
    requested_metrics: list[str] = field()


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    """Sends metrics, as compressed OTLP."""

    client_instance_id: Uuid = field()
    subscription_id: int32 = field()
    terminating: bool = field()
    compression_type: int8 = field()
    metrics: bytes = field()


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """Says whether the metrics were accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
