"""The settings of groups: what a group has of its own (KIP-848's GROUP resource), and the rules among the broker's.

Which of the broker's settings there are is in `settings_table`; how a group's are asked for is the handlers' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from minibroker.broker.image import GROUP_RESOURCE
from minibroker.broker.settings_table import FROM_ONE, FROM_ZERO, INT, Range, Setting
from minibroker.broker.settings_values import InvalidValue, canonical_text, parse_value
from minibroker.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from minibroker.broker.cluster import Cluster
    from minibroker.broker.settings import Settings


class GroupSetting(NamedTuple):
    """A setting that a group can have for itself: how it is described, and the broker's for those that do not."""

    row: Setting
    default: str
    minimum: str
    maximum: str


def _setting(name: str, default: int, valid: Range, text: str, *brokers: str) -> GroupSetting:
    return GroupSetting(Setting(name, INT, default, text, valid), *brokers)


GROUP_SETTINGS: Final = {
    each.row.name: each
    for each in (
        _setting(
            *("consumer.assignment.interval.ms", 0, FROM_ZERO),
            "How long the target assignment of a consumer group stays at least.",
            "group.consumer.assignment.interval.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
        _setting(
            *("consumer.heartbeat.interval.ms", 5000, FROM_ONE),
            "How often the members of a consumer group are to be heard of.",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        _setting(
            *("consumer.session.timeout.ms", 45_000, FROM_ONE),
            "After what time a silent member is put out of a consumer group.",
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
    )
}


def group_value(cluster: Cluster, group_id: str, name: str) -> Any:
    """One setting of a group in force: its own, within the broker's bounds as they are now, or the broker's."""
    setting = GROUP_SETTINGS[name]
    text = cluster.image.configs.get((GROUP_RESOURCE, group_id), {}).get(name)
    if text is None:
        return cluster.settings[setting.default]
    value: Any = parse_value(setting.row, name, text)
    return min(max(value, cluster.settings[setting.minimum]), cluster.settings[setting.maximum])


def validate_group_overrides(settings: Settings, overrides: Mapping[str, str]) -> dict[str, str]:
    """The settings of a group, all of them together, as they are to be kept. Raises KafkaError(INVALID_CONFIG)."""
    texts = {name: _text(name, text) for name, text in overrides.items()}
    values: dict[str, Any] = {name: settings[setting.default] for name, setting in GROUP_SETTINGS.items()}
    for name, text in texts.items():
        setting = GROUP_SETTINGS[name]
        value: Any = parse_value(setting.row, name, text)
        if value < settings[setting.minimum]:
            raise _invalid(f"{name} must be greater than or equal to {setting.minimum}")
        if value > settings[setting.maximum]:
            raise _invalid(f"{name} must be less than or equal to {setting.maximum}")
        values[name] = value
    if values["consumer.session.timeout.ms"] <= values["consumer.heartbeat.interval.ms"]:
        raise _invalid("consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms")
    return texts


def _text(name: str, text: str) -> str:
    if name not in GROUP_SETTINGS:
        raise _invalid(f"Unknown group config name: {name}")
    try:
        return canonical_text(GROUP_SETTINGS[name].row, name, text)
    except InvalidValue as error:
        raise _invalid(str(error)) from None


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def objection(settings: Settings) -> str | None:
    """What is wrong with the broker's settings of groups among each other, as in Kafka's GroupCoordinatorConfig."""
    for setting in GROUP_SETTINGS.values():
        if settings[setting.maximum] < settings[setting.minimum]:
            return f"{setting.maximum} must be greater than or equal to {setting.minimum}"
        if not settings[setting.minimum] <= settings[setting.default] <= settings[setting.maximum]:
            return f"{setting.default} must be between {setting.minimum} and {setting.maximum}"
    if settings["group.consumer.session.timeout.ms"] <= settings["group.consumer.heartbeat.interval.ms"]:
        return "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms"
    assignors = settings["group.consumer.assignors"]
    if not assignors or not set(assignors) <= {"uniform", "range"}:
        return (
            "group.consumer.assignors must have uniform or range, and no other: assignors of one's own are Java classes"
        )
    if "classic" not in settings["group.coordinator.rebalance.protocols"]:
        return "Disabling the 'classic' protocol is not supported."
    return None
