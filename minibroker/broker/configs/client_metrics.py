"""Client metrics subscriptions (KIP-714): the configs of the CLIENT_METRICS resource and their rules.

They are stored and described, but no client sends metrics: like a Kafka without a plugin for them, this broker does
not announce GetTelemetrySubscriptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from minibroker.broker.configs.settings_table import INT, LIST, Setting
from minibroker.broker.configs.settings_values import InvalidValue, canonical_text, parse_value
from minibroker.protocol.errors import ErrorCode, KafkaError

INTERVAL_MS, MATCH, METRICS = "interval.ms", "match", "metrics"
SHORTEST_MS, LONGEST_MS = 100, 3_600_000
PARAMETERS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)

CLIENT_METRICS_SETTINGS: Final = {
    INTERVAL_MS: Setting(INTERVAL_MS, INT, 300_000, "How often clients send their metrics.", acts=False),
    MATCH: Setting(MATCH, LIST, (), "The clients of the subscription, as name=regular expression pairs.", acts=False),
    METRICS: Setting(METRICS, LIST, (), "The prefixes of metric names; * for all.", acts=False),
}


def validate_client_metrics(overrides: Mapping[str, str]) -> dict[str, str]:
    """Validate the configs of a subscription together, and return them normalized.

    Raise KafkaError: INVALID_REQUEST, INVALID_CONFIG.
    """
    unknown = next((name for name in overrides if name not in CLIENT_METRICS_SETTINGS), None)
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}")
    try:
        texts = {name: canonical_text(CLIENT_METRICS_SETTINGS[name], name, text) for name, text in overrides.items()}
    except InvalidValue as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if INTERVAL_MS in texts:
        _check_interval(texts[INTERVAL_MS])
    for pattern in texts.get(MATCH, "").split(","):
        if pattern:
            _check_pattern(pattern)
    return texts


def _check_interval(text: str) -> None:
    interval_ms = parse_value(CLIENT_METRICS_SETTINGS[INTERVAL_MS], INTERVAL_MS, text)
    if not isinstance(interval_ms, int) or not SHORTEST_MS <= interval_ms <= LONGEST_MS:
        bounds = f"interval must be between {SHORTEST_MS} and {LONGEST_MS} (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid value {text} for {INTERVAL_MS}, {bounds}")


def _check_pattern(pattern: str) -> None:
    parameter, _, expression = pattern.partition("=")
    try:
        valid = parameter.strip() in PARAMETERS and bool(expression) and "=" not in expression
        re.compile(expression.strip())
    except re.error:
        valid = False
    if not valid:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
