"""The settings of groups: the configs of the GROUP resource (KIP-848), and the rules between broker settings.

The broker settings of groups are in `settings_table`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

from minibroker.broker.configs.settings_table import (
    BOOLEAN,
    FROM_ONE,
    FROM_ZERO,
    INT,
    LIST,
    LONG,
    STRING,
    ConfigType,
    Setting,
)
from minibroker.broker.configs.settings_values import InvalidValue, normalize_setting_text, parse_setting_value
from minibroker.broker.configs.valid_values import OneOf, Range
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.metadata_records import GROUP_RESOURCE


class GroupSetting(NamedTuple):
    """A config of a group: its row, and the names of the broker settings for its default, minimum and maximum.

    Some have no such broker settings.
    """

    row: Setting
    default: str | None = None
    minimum: str | None = None
    maximum: str | None = None


def _make_group_setting(
    name: str, default: int, valid: Range, documentation: str, *broker_settings: str | None
) -> GroupSetting:
    """Return a group's setting; `broker_settings` name those of the broker for its default, minimum and maximum."""
    return GroupSetting(Setting(name, INT, default, documentation, valid), *broker_settings)


def _make_internal_group_setting(
    name: str, type: ConfigType, default: int, valid: Range, documentation: str, *broker_settings: str | None
) -> GroupSetting:
    """Return an internal setting: it is described only if it is set."""
    return GroupSetting(Setting(name, type, default, documentation, valid, internal=True), *broker_settings)


def _make_group_setting_with_broker_bounds(name: str, default: int, valid: Range, documentation: str) -> GroupSetting:
    """Return a setting that has a default and bounds in the broker settings."""
    kind, rest = name.split(".", 1)
    return _make_group_setting(
        name, default, valid, documentation, f"group.{name}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    )


SHARE_CODEC: Final = "share.coordinator.state.topic.compression.codec"
CODECS: Final = range(5)  # as in the attributes of a batch
OFFSET_RESET: Final = "share.auto.offset.reset"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
ASSIGNOR: Final = "streams.assignor.name"
RACK_TAGS: Final = "streams.rack.aware.assignment.tags"
DEAD_LETTER_COPIES: Final = "errors.deadletterqueue.copy.record.enable"
# A text, as `re` compiles it at its first use.
DURATION: Final = r"(?i)by_duration:\+?P(?=.)(\+?\d+D)?(T(?=.)(\+?\d+H)?(\+?\d+M)?(\+?\d+([.,]\d{0,9})?S)?)?"

GROUP_SETTINGS: Final = {
    each.row.name: each
    for each in (
        _make_group_setting_with_broker_bounds(
            *("share.session.timeout.ms", 45_000, FROM_ONE),
            "The time without heartbeats after which a member is removed from a share group.",
        ),
        _make_group_setting_with_broker_bounds(
            *("share.heartbeat.interval.ms", 5000, FROM_ONE), "How often the members of a share group send heartbeats."
        ),
        _make_group_setting_with_broker_bounds(
            *("share.record.lock.duration.ms", 30_000, Range(1000)),
            "How long a member of a share group may keep acquired records before others get them.",
        ),
        _make_group_setting_with_broker_bounds(
            *("share.delivery.count.limit", 5, Range(2)),
            "How often a record is delivered to a share group at most; then it is archived.",
        ),
        _make_group_setting_with_broker_bounds(
            *("share.partition.max.record.locks", 2000, Range(100)),
            "The most records of a partition between the first and the last one in flight, for a share group.",
        ),
        _make_group_setting_with_broker_bounds(
            *("share.assignment.interval.ms", 1000, FROM_ZERO),
            "The least time between two target assignments of a share group.",
        ),
        GroupSetting(
            Setting(
                *(OFFSET_RESET, STRING, "latest"),
                "Where a new share group begins to read: latest, earliest, or by_duration: with an ISO 8601 duration.",
            )
        ),
        GroupSetting(
            Setting(
                *("share.isolation.level", STRING, "read_uncommitted"),
                "Whether a share group gets the records of open and aborted transactions.",
                OneOf(("read_committed", "read_uncommitted")),
            )
        ),
        GroupSetting(
            Setting(
                *("share.renew.acknowledge.enable", BOOLEAN, True),
                "Whether members of a share group may renew the locks of records.",
            )
        ),
        GroupSetting(
            Setting(
                *(DEAD_LETTER_TOPIC, STRING, ""),
                "The topic for dead letters of a share group; needs share.version 2, and the topic's permission.",
            )
        ),
        GroupSetting(
            Setting(
                *(DEAD_LETTER_COPIES, BOOLEAN, False),
                "Whether a dead letter has the key and the value of its record, besides the headers that name it.",
            )
        ),
        _make_group_setting_with_broker_bounds(
            *("streams.session.timeout.ms", 45_000, FROM_ONE),
            "The time without heartbeats after which a member is removed from a streams group.",
        ),
        _make_group_setting_with_broker_bounds(
            *("streams.heartbeat.interval.ms", 5000, FROM_ONE),
            "How often the members of a streams group send heartbeats.",
        ),
        _make_group_setting_with_broker_bounds(
            *("streams.assignment.interval.ms", 1000, FROM_ZERO),
            "The least time between two target assignments of a streams group.",
        ),
        _make_group_setting(
            *("streams.initial.rebalance.delay.ms", 3000, FROM_ZERO),
            "How long an empty streams group waits for more members before its first assignment.",
            "group.streams.initial.rebalance.delay.ms",
        ),
        _make_group_setting(
            *("streams.num.standby.replicas", 0, FROM_ZERO),
            "How many standbys each task with state has in a streams group.",
            *("group.streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
        ),
        GroupSetting(
            Setting(
                *(ASSIGNOR, STRING, None),
                "The assignor of a streams group, one of group.streams.assignors.",
            ),
            "group.streams.assignors",
        ),
        GroupSetting(
            Setting(
                *(RACK_TAGS, LIST, ()),
                "The tags that members of a streams group must have. No assignor looks at them, as in Kafka 4.4.",
            ),
            "group.streams.rack.aware.assignment.tags",
        ),
        _make_internal_group_setting(
            *("streams.task.offset.interval.ms", INT, 60_000, FROM_ONE),
            "How often members of a streams group report how far they have restored their tasks.",
            *("group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms"),
        ),
        _make_internal_group_setting(
            *("streams.num.warmup.replicas", INT, 2, FROM_ZERO),
            "How many tasks of a streams group are restored elsewhere at a time, before they move there.",
            *("group.streams.num.warmup.replicas", None, "group.streams.max.warmup.replicas"),
        ),
        _make_internal_group_setting(
            *("streams.acceptable.recovery.lag", LONG, 10_000, FROM_ZERO),
            "How many offsets a member of a streams group may lack of a task's state, and get the task.",
            "group.streams.acceptable.recovery.lag",
        ),
        _make_group_setting(
            *("consumer.assignment.interval.ms", 0, FROM_ZERO),
            "The least time between two target assignments of a consumer group.",
            "group.consumer.assignment.interval.ms",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
        _make_group_setting(
            *("consumer.heartbeat.interval.ms", 5000, FROM_ONE),
            "How often the members of a consumer group send heartbeats.",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
        ),
        _make_group_setting(
            *("consumer.session.timeout.ms", 45_000, FROM_ONE),
            "The time without heartbeats after which a member is removed from a consumer group.",
            "group.consumer.session.timeout.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.max.session.timeout.ms",
        ),
    )
}


class SettingValues(Protocol):
    """The broker's settings, as far as those of groups are compared with them."""

    def __getitem__(self, name: str) -> Any:
        """Return the current value of a setting."""

    def get_value(self, name: str) -> Any:
        """Return the current value of a broker setting, also of one without effect."""


class ResourceConfigs(Protocol):
    """The configs of all resources, by type and name."""

    configs: dict[tuple[int, str], dict[str, str]]


class ConfiguredCluster(Protocol):
    """The part of a cluster that has configs."""

    @property
    def settings(self) -> SettingValues:
        """Return the settings of the broker."""

    @property
    def image(self) -> ResourceConfigs:
        """Return the metadata, of which only the configs are needed."""


def get_group_config(cluster: ConfiguredCluster, group_id: str, name: str) -> Any:
    """Return a group's current value: its own, within the broker's current bounds, or the broker's."""
    setting = GROUP_SETTINGS[name]
    text = cluster.image.configs.get((GROUP_RESOURCE, group_id), {}).get(name)
    if text is None:
        return setting.row.default if setting.default is None else cluster.settings[setting.default]
    value: Any = parse_setting_value(setting.row, name, text)
    if setting.minimum is not None:
        value = max(value, cluster.settings[setting.minimum])
    return value if setting.maximum is None else min(value, cluster.settings[setting.maximum])


def parse_duration_ms(text: str) -> int:
    """Return the length of `by_duration:P1DT2H3M4.5S` in ms."""
    found = re.fullmatch(DURATION, text)
    assert found is not None, text
    days, _, hours, minutes, seconds, _ = (part or "0_" for part in found.groups())
    parts = zip((days, hours, minutes, seconds), (86_400_000, 3_600_000, 60_000, 1000), strict=True)
    return int(sum(float(part[:-1].replace(",", ".")) * unit_ms for part, unit_ms in parts))


def validate_group_overrides(settings: SettingValues, overrides: Mapping[str, str]) -> dict[str, str]:
    """Validate the configs of a group together; return them normalized. Raises KafkaError(INVALID_CONFIG)."""
    texts = {name: _normalize_group_config(name, text) for name, text in overrides.items()}
    values: dict[str, Any] = {
        name: settings.get_value(setting.default)
        for name, setting in GROUP_SETTINGS.items()
        if setting.default is not None
    }
    for name, text in texts.items():
        setting = GROUP_SETTINGS[name]
        value: Any = parse_setting_value(setting.row, name, text)
        _check_value_within_broker_bounds(settings, setting, value)
        values[name] = value
    assignors = settings.get_value("group.streams.assignors")
    assignor = texts.get(ASSIGNOR)
    if assignor is not None and assignor not in assignors:
        registered = f"Registered assignors are: [{', '.join(assignors)}]."
        raise _make_invalid_config_error(f"{ASSIGNOR} '{assignor}' is not a registered task assignor. {registered}")
    for kind in ("consumer", "share", "streams"):
        if values[f"{kind}.session.timeout.ms"] <= values[f"{kind}.heartbeat.interval.ms"]:
            raise _make_invalid_config_error(
                f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            )
    return texts


def _check_value_within_broker_bounds(settings: SettingValues, setting: GroupSetting, value: Any) -> None:
    """Raise KafkaError(INVALID_CONFIG) unless the value is within the minimum and maximum in the broker settings."""
    least = None if setting.minimum is None else settings.get_value(setting.minimum)
    most = None if setting.maximum is None else settings.get_value(setting.maximum)
    if (least is None or least <= value) and (most is None or value <= most):
        return
    if least is not None and most is not None:
        raise _make_invalid_config_error(f"{setting.row.name} must be in the range {least} to {most} inclusive.")
    bound = f"less than or equal to {most}" if least is None else f"greater than or equal to {least}"
    raise _make_invalid_config_error(f"{setting.row.name} must be {bound}")


def _normalize_group_config(name: str, text: str) -> str:
    if name not in GROUP_SETTINGS:
        raise _make_invalid_config_error(f"Unknown group config name: {name}")
    try:
        canonical = normalize_setting_text(GROUP_SETTINGS[name].row, name, text)
    except InvalidValue as error:
        raise _make_invalid_config_error(str(error)) from None
    if name == OFFSET_RESET and canonical not in ("earliest", "latest") and not re.fullmatch(DURATION, canonical):
        allowed = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        raise _make_invalid_config_error(f"Invalid value {text} for configuration {name}: {allowed}")
    if name == DEAD_LETTER_TOPIC and canonical.startswith("__"):
        raise _make_invalid_config_error(f"{name}: DLQ topic name must not start with '__'")
    return canonical


def _make_invalid_config_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def find_group_settings_objection(settings: SettingValues) -> str | None:
    """Return the violation of a rule of Kafka's GroupCoordinatorConfig in the broker settings, or None."""
    for _, default, minimum, maximum in GROUP_SETTINGS.values():
        if default is None:
            continue
        if minimum is not None and maximum is not None and settings[maximum] < settings[minimum]:
            return f"{maximum} must be greater than or equal to {minimum}"
        if minimum is not None and settings[default] < settings[minimum]:
            return f"{default} must be greater than or equal to {minimum}"
        if maximum is not None and settings[default] > settings[maximum]:
            return f"{default} must be less than or equal to {maximum}"
    for kind in ("consumer", "share", "streams"):
        if settings[f"group.{kind}.session.timeout.ms"] <= settings[f"group.{kind}.heartbeat.interval.ms"]:
            return f"group.{kind}.heartbeat.interval.ms must be less than group.{kind}.session.timeout.ms"
    if settings[SHARE_CODEC] not in CODECS:
        return f"{SHARE_CODEC} must be one of {', '.join(map(str, CODECS))}"
    assignors = settings["group.consumer.assignors"]
    if not assignors or not set(assignors) <= {"uniform", "range"}:
        return (
            "group.consumer.assignors must have uniform or range, and no other: assignors of one's own are Java classes"
        )
    if settings["group.streams.assignors"] != ("sticky",):
        return "group.streams.assignors must be sticky: assignors of one's own are Java classes"
    if "classic" not in settings["group.coordinator.rebalance.protocols"]:
        return "Disabling the 'classic' protocol is not supported."
    return None
