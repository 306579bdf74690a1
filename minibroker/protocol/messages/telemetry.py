"""Metrics that clients send to brokers (KIP-714).

The config resource "client metrics" says which metrics they send.
"""

from __future__ import annotations

from minibroker.protocol.declare import Message, Uuid, field, int8, int16, int32


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+", kips={0: 714}):
    """Asks which metrics the client should send."""

    client_instance_id: Uuid = field(about="The id the broker gave to this client; all zero to get one.")


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+", kips={0: 714}):
    """Answers with the metrics, their interval, the accepted compression and the client's instance id."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    client_instance_id: Uuid = field(about="The id the client should use as long as it runs; all zero if it has one.")
    subscription_id: int32 = field(
        about="A checksum of what is asked for: if a push names another one, the client asks again."
    )
    accepted_compression_types: list[int8] = field(
        about="How metrics may be compressed, by the numbers that record batches have."
    )
    push_interval_ms: int32 = field(about="How often the client should send its metrics.")
    telemetry_max_bytes: int32 = field(about="How large a push may be.")
    delta_temporality: bool = field(
        about="Whether counters are sent as what came since the last push, instead of the total."
    )
    requested_metrics: list[str] = field(
        about="The beginnings of the names of the metrics to send; one empty text is all, no text is none."
    )


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+", kips={0: 714}):
    """Sends metrics, as compressed OTLP."""

    client_instance_id: Uuid = field(about="The id the broker gave to this client.")
    subscription_id: int32 = field(
        about="What the client believes to be asked for; the broker refuses an outdated one."
    )
    terminating: bool = field(about="Whether this is the last push, which may then come before its time.")
    compression_type: int8 = field(about="How the metrics are compressed, by the numbers that record batches have.")
    metrics: bytes = field(about="The metrics, in the protobuf of OpenTelemetry.")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    """Says whether the metrics were accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
