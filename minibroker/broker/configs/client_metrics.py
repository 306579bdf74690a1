"""Client metrics subscriptions (KIP-714): the configs of the CLIENT_METRICS resource and their rules.

`broker/client_telemetry.py` asks clients for metrics by them, with client.telemetry.enable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minibroker.broker.configs.settings_table import INT, LIST, Setting
from minibroker.broker.configs.settings_values import InvalidValue, normalize_setting_text, parse_setting_value
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
    INTERVAL_MS: Setting(INTERVAL_MS, INT, 300_000, "How often clients send their metrics."),
    MATCH: Setting(MATCH, LIST, (), "The clients of the subscription, as name=regular expression pairs."),
    METRICS: Setting(METRICS, LIST, (), "The prefixes of metric names; * for all."),
}


def validate_client_metrics_overrides(overrides: Mapping[str, str]) -> dict[str, str]:
    """Validate the configs of a subscription together, but not the patterns in `match`; return them normalized.

    Raises KafkaError: INVALID_REQUEST, INVALID_CONFIG.
    """
    unknown = next((name for name in overrides if name not in CLIENT_METRICS_SETTINGS), None)
    if unknown is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {unknown}")
    try:
        texts = {
            name: normalize_setting_text(CLIENT_METRICS_SETTINGS[name], name, text) for name, text in overrides.items()
        }
    except InvalidValue as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if INTERVAL_MS in texts:
        _check_push_interval(texts[INTERVAL_MS])
    parse_match_expressions(texts.get(MATCH, ""))
    return texts


def _check_push_interval(text: str) -> None:
    interval_ms = parse_setting_value(CLIENT_METRICS_SETTINGS[INTERVAL_MS], INTERVAL_MS, text)
    if not isinstance(interval_ms, int) or not SHORTEST_MS <= interval_ms <= LONGEST_MS:
        bounds = f"interval must be between {SHORTEST_MS} and {LONGEST_MS} (1 hour)"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid value {text} for {INTERVAL_MS}, {bounds}")


def parse_match_expressions(text: str) -> dict[str, str]:
    """Return the expressions of `match` by their parameters. Raises KafkaError(INVALID_CONFIG)."""
    found = {}
    for pattern in filter(None, text.split(",")):
        parameter, _, expression = pattern.partition("=")
        if parameter.strip() not in PARAMETERS or not expression or "=" in expression:
            raise make_illegal_pattern_error(pattern)
        found[parameter.strip()] = expression.strip()
    return found


def make_illegal_pattern_error(text: str) -> KafkaError:
    """Return the error for a pattern, in Kafka's words."""
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}")
