"""The current settings: typed look-up, the values for a topic, and their descriptions for DescribeConfigs.

A `Settings` is immutable; a change at run time creates a new one. `configuration` reads files, the environment and
the command line, `settings_values` parses a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any

from minibroker.broker.configs import group_settings
from minibroker.broker.configs.settings_table import (
    BROKER_SETTINGS,
    LONG_MAX,
    TIMESTAMP_TYPES,
    TOPIC_SETTINGS,
    Setting,
    SettingScope,
    SettingValue,
)
from minibroker.broker.configs.settings_values import (
    InvalidValue,
    format_setting_value,
    normalize_setting_text,
    parse_setting_value,
)
from minibroker.broker.configs.valid_values import find_magic_of_format_version
from minibroker.named_tuples import NamedTuple
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log_settings import LogSettings

MIN_KEYS_BYTES = 1 << 20
KEY_BYTES = 24  # the cleaner's memory for a key

UNLIMITED = -1
ELIDE = "record.attributes.elide"


def get_broker_setting_declaration(name: str) -> Setting:
    """Return the declaration of a broker setting, also of one without effect or with an unknown name."""
    row = BROKER_SETTINGS.get(name)
    if row is not None:
        return row
    # Needed only to set or list what is not in the table; a plain start does without it.
    from minibroker.broker.configs.settings_without_effect import find_broker_setting_declaration

    return find_broker_setting_declaration(name)


class SettingsError(Exception):
    """Invalid settings, with which the broker does not start; the message is always one line."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class ConfigSource(IntEnum):
    """The source of a value, numbered as in DescribeConfigs 1 and newer (KIP-226)."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_CLIENT_METRICS = 7
    DYNAMIC_GROUP = 8


class ConfigSynonym(NamedTuple):
    """A possible source of a value; `value` is None if it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """The description of a setting for DescribeConfigs; `value` is None if unset or sensitive."""

    name: str
    value: str | None
    source: ConfigSource
    setting: Setting
    read_only: bool
    synonyms: tuple[ConfigSynonym, ...]

    @property
    def documentation(self) -> str:
        """Return the setting's documentation, which says if the setting has no effect."""
        return self.setting.full_documentation

    @property
    def is_listed(self) -> bool:
        """Return whether the setting is described: one that is internal or unknown to Kafka only if it is set.

        Programs such as MirrorMaker copy the listed settings to another cluster.
        """
        return (self.setting.in_kafka and not self.setting.internal) or self.source is not ConfigSource.DEFAULT


class Settings:
    """The broker's settings by name: `settings["log.segment.bytes"]`.

    A look-up returns the current value, with the type in the table: bool, int, float, str, tuple of str, or None.
    `log.roll.ms` and its like include values that were set in hours. An unknown name raises KeyError. Settings without
    effect are stored and described, but cannot be looked up.
    """

    def __init__(
        self,
        static: Mapping[str, str] | None = None,
        *,
        cluster: Mapping[str, str] | None = None,
        broker: Mapping[str, str] | None = None,
    ) -> None:
        """Combine the settings of the start, `static`, with those of AlterConfigs for all brokers and for this one.

        All are texts by broker setting name. Raises SettingsError.
        """
        self._texts = {
            ConfigSource.DYNAMIC_BROKER: _normalize_setting_texts(broker or {}),
            ConfigSource.DYNAMIC_DEFAULT_BROKER: _normalize_setting_texts(cluster or {}),
            ConfigSource.STATIC_BROKER: _copy_node_id_to_broker_id(_normalize_setting_texts(static or {})),
        }
        self._set = self._parse_all_values()
        self._described: list[ConfigEntry] | None = None  # computed on first use
        self._log_settings: LogSettings | None = None  # of topics without overrides, computed on first use
        self._topic_entries: dict[str, ConfigEntry] = {}  # for topics that do not override them, computed on first use
        self._values = {name: self._get_effective_value(row) for name, row in BROKER_SETTINGS.items()}
        self._check_rules_between_settings()
        self._topic_values: dict[str, SettingValue] = {
            topic: row.default if row.scope is SettingScope.TOPIC else self._values[row.name]
            for topic, row in TOPIC_SETTINGS.items()
        }

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get_value(self, name: str) -> Any:
        """Return the typed value or default of a setting, including settings without effect."""
        return self._set.get(name, get_broker_setting_declaration(name).default)

    @property
    def static_texts(self) -> dict[str, str]:
        """Return the static settings, as texts by name."""
        return dict(self._texts[ConfigSource.STATIC_BROKER])

    @property
    def log_directories(self) -> tuple[str, ...]:
        """Return the data directories: `log.dirs`, or `log.dir` if that is unset."""
        directories: tuple[str, ...] = self["log.dirs"] or self["log.dir"]
        return directories

    def with_dynamic_configs(
        self, *, cluster: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None
    ) -> Settings:
        """Return these settings with other dynamic values, for all brokers, this one, or both. Raises SettingsError."""
        return Settings(
            self._texts[ConfigSource.STATIC_BROKER],
            cluster=self._texts[ConfigSource.DYNAMIC_DEFAULT_BROKER] if cluster is None else cluster,
            broker=self._texts[ConfigSource.DYNAMIC_BROKER] if broker is None else broker,
        )

    def get_topic_value(self, name: str, overrides: Mapping[str, str]) -> Any:
        """Return the value of a topic setting for a topic with these (valid) overrides."""
        if name in overrides:
            return parse_setting_value(TOPIC_SETTINGS[name], name, overrides[name])
        return self._topic_values[name]

    def get_log_settings(self, overrides: Mapping[str, str]) -> LogSettings:
        """Return the log settings of a topic with these (valid) overrides; topics without overrides share an object."""
        if not overrides and self._log_settings is not None:
            return self._log_settings
        values = dict(self._topic_values)
        values[ELIDE] = None
        for name, text in overrides.items():
            values[name] = parse_setting_value(TOPIC_SETTINGS[name], name, text)
        made = _make_log_settings(values)
        if not overrides:
            self._log_settings = made
        return made

    def describe_topic_configs(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Describe all settings of a topic with these (valid) overrides; internal ones only where overridden."""
        names = (name for name, row in TOPIC_SETTINGS.items() if not row.internal or name in overrides)
        return [self._describe_topic_config(name, overrides) for name in sorted(names)]

    def get_topic_config_source(self, entry: ConfigEntry) -> ConfigSource:
        """Return the source of a topic's value as CreateTopics reports it, also if a fallback setting has it."""
        names = [name for name, _ in entry.setting.fallbacks] if entry.source is ConfigSource.DEFAULT else []
        given = (source for source, texts in self._texts.items() for name in names if name in texts)
        return next(given, entry.source)

    def describe_broker_configs(self) -> list[ConfigEntry]:
        """Describe all settings of this broker; internal ones only where they are set."""
        if self._described is None:
            from minibroker.broker.configs.settings_without_effect import WITHOUT_EFFECT

            rows = (*BROKER_SETTINGS.values(), *WITHOUT_EFFECT.values())
            names = {row.name for row in rows if not row.internal} | self._set.keys()
            self._described = [
                self._make_broker_config_entry(name, tuple(self._iterate_config_synonyms(name)))
                for name in sorted(names)
            ]
        return self._described

    def describe_cluster_configs(self) -> list[ConfigEntry]:
        """Describe the dynamic settings of all brokers, which a request for the broker without a name returns."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        entries = []
        for name in sorted(self._texts[source]):
            synonyms = tuple(synonym for synonym in self._iterate_config_synonyms(name) if synonym.source is source)
            entries.append(self._make_broker_config_entry(name, synonyms)._replace(value=synonyms[0].value))
        return entries

    def list_config_synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Return the sources of a broker setting's value, in order of precedence."""
        return tuple(self._iterate_config_synonyms(name))

    def _parse_all_values(self) -> dict[str, SettingValue]:
        """Return the typed value of every name that is set, from the source with the highest precedence."""
        return {
            name: parse_setting_value(get_broker_setting_declaration(name), name, text)
            for source in reversed(self._texts)
            for name, text in self._texts[source].items()
        }

    def _get_effective_value(self, setting: Setting) -> SettingValue:
        """Return a setting's value, or else that of its first fallback setting with one, converted to its own unit."""
        value = self._set.get(setting.name, setting.default)
        for name, factor in setting.fallbacks:
            if value is not None:
                break
            other: Any = self._set.get(name, BROKER_SETTINGS[name].default)
            value = None if other is None else max(other * factor, UNLIMITED)
        return value

    def _check_rules_between_settings(self) -> None:
        """Check the rules between settings, as in Kafka's KafkaConfig. Raises SettingsError."""
        queued, largest = self["queued.max.request.bytes"], self["socket.request.max.bytes"]
        if 0 < queued < largest:
            raise SettingsError(
                f"queued.max.request.bytes={queued} must be at least socket.request.max.bytes={largest}"
            )
        if self["log.retention.ms"] == 0:
            raise SettingsError("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
        objection = _find_cleaner_settings_objection(self) or group_settings.find_group_settings_objection(self)
        if objection is not None:
            raise SettingsError(objection)
        _check_cordoned_directories(self.log_directories, self._get_static_value("cordoned.log.dirs"))
        conflict = _find_compaction_lag_conflict(
            self["log.cleaner.min.compaction.lag.ms"], self["log.cleaner.max.compaction.lag.ms"]
        )
        if conflict is not None:
            raise SettingsError(conflict)

    def _get_static_value(self, name: str) -> Any:
        """Return the value that a setting has without dynamic ones."""
        row, text = BROKER_SETTINGS[name], self._texts[ConfigSource.STATIC_BROKER].get(name)
        return row.default if text is None else parse_setting_value(row, name, text)

    def _describe_topic_config(self, name: str, overrides: Mapping[str, str]) -> ConfigEntry:
        """Return the description of a topic's setting, the same object for all topics that do not override it."""
        if name in overrides:
            return self._make_topic_config_entry(name, overrides)
        if name not in self._topic_entries:
            self._topic_entries[name] = self._make_topic_config_entry(name, {})
        return self._topic_entries[name]

    def _make_topic_config_entry(self, name: str, overrides: Mapping[str, str]) -> ConfigEntry:
        row = TOPIC_SETTINGS[name]
        synonyms = () if row.scope is SettingScope.TOPIC else tuple(self._iterate_config_synonyms(row.name))
        if name in overrides:
            synonyms = (ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_TOPIC), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        value = format_setting_value(self.get_topic_value(name, overrides))
        return ConfigEntry(name, value, source, row, False, synonyms)

    def _make_broker_config_entry(self, name: str, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
        row = get_broker_setting_declaration(name)
        value = None if row.is_sensitive else format_setting_value(self._set.get(name, row.default))
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        return ConfigEntry(name, value, source, row, not row.is_dynamic, synonyms)

    def _iterate_config_synonyms(self, name: str) -> Iterator[ConfigSynonym]:
        """Yield the sources of a broker setting's value, in order of precedence.

        As in Kafka, entries before the first one of the name itself are left out: while only log.roll.hours is set, it
        is no synonym of log.roll.ms, and the source of both is DEFAULT.
        """
        row = get_broker_setting_declaration(name)
        names = (name, *(fallback for fallback, _ in row.fallbacks))
        reached = False
        for source, texts in (*self._texts.items(), (ConfigSource.DEFAULT, None)):
            for synonym in names:
                text = (
                    format_setting_value(get_broker_setting_declaration(synonym).default)
                    if texts is None
                    else texts.get(synonym)
                )
                reached = reached or (text is not None and synonym == name)
                if text is not None and reached:
                    yield ConfigSynonym(synonym, None if row.is_sensitive else text, source)


def _normalize_setting_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts as DescribeConfigs shows them: trimmed, lists without blanks. Raises SettingsError."""
    try:
        return {
            name: normalize_setting_text(get_broker_setting_declaration(name), name, text)
            for name, text in texts.items()
        }
    except InvalidValue as error:
        raise SettingsError(str(error)) from None


def _copy_node_id_to_broker_id(static_texts: dict[str, str]) -> dict[str, str]:
    """Copy node.id to broker.id, or the reverse. Raises SettingsError if they disagree."""
    ids = {static_texts[name] for name in ("node.id", "broker.id") if name in static_texts}
    if len(ids) > 1:
        raise SettingsError(
            f"node.id={static_texts['node.id']} and broker.id={static_texts['broker.id']} must be the same"
        )
    return {**static_texts, **{name: number for number in ids for name in ("node.id", "broker.id")}}


def _find_cleaner_settings_objection(settings: Settings) -> str | None:
    """Return an error in the cleaner's threads and memory, which Kafka would reject too, or None."""
    threads = settings["log.cleaner.threads"]
    if threads < 1:
        return "log.cleaner.threads must be at least 1"
    bytes_per_thread = settings["log.cleaner.dedupe.buffer.size"] // threads
    if bytes_per_thread <= MIN_KEYS_BYTES:
        return "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    if bytes_per_thread // KEY_BYTES * settings["log.cleaner.io.buffer.load.factor"] <= 1:
        return (
            "log.cleaner.io.buffer.load.factor: offset map is too small to fit in even a single message, "
            "so log cleaning will never make progress."
        )
    return None


def _check_cordoned_directories(directories: Sequence[str], cordoned: Sequence[str]) -> None:
    """Raise SettingsError unless each of `cordoned` is a log directory, or it is "*" alone.

    A start does not check the dynamic value: the directory may be gone by then.
    """
    if "*" in cordoned:
        if len(cordoned) > 1:
            raise SettingsError("When cordoned.log.dirs is set to *, it must not contain other values")
        return
    missing = ", ".join(path for path in cordoned if path not in directories)
    if missing:
        raise SettingsError(
            f"All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {missing}"
        )


def _find_compaction_lag_conflict(min_ms: int, max_ms: int) -> str | None:
    if min_ms <= max_ms:
        return None
    return f"conflict topic config setting min.compaction.lag.ms ({min_ms}) > max.compaction.lag.ms ({max_ms})"


def _make_log_settings(values: Mapping[str, Any]) -> LogSettings:
    """Return the log settings among a topic's typed values, in the types of storage."""
    fields = {field: values[field.replace("_", ".")] for field in LogSettings._fields}
    fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
    fields["message_format_version"] = find_magic_of_format_version(fields["message_format_version"])
    fields.update(_derive_timestamp_bounds(values))
    fields["message_timestamp_type"] = TIMESTAMP_TYPES.choices.index(fields["message_timestamp_type"])
    if values["internal.segment.bytes"] is not None:
        fields["segment_bytes"] = values["internal.segment.bytes"]
    return LogSettings(**fields)


def _derive_timestamp_bounds(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the bounds that message.timestamp.difference.max.ms implies where they are not set, as in Kafka 3.6."""
    difference_ms = values["message.timestamp.difference.max.ms"]
    if difference_ms == LONG_MAX:
        return {}
    names = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
    given = {name.replace(".", "_"): values[name] in (TOPIC_SETTINGS[name].default, LONG_MAX) for name in names}
    return {field: difference_ms for field, is_default in given.items() if is_default}


def validate_topic_overrides(settings: Settings, overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Validate the configs of a topic together, for CreateTopics and AlterConfigs.

    Return them normalized: trimmed, lists without blanks and duplicates. Raises KafkaError(INVALID_CONFIG) with
    the name of the setting in its message.
    """
    nulls = sorted(name for name, text in overrides.items() if text is None)
    if nulls:
        raise _make_invalid_config_error(f"Null value not supported for topic configs: {', '.join(nulls)}")
    texts = {name: _normalize_topic_text(name, text) for name, text in overrides.items() if text is not None}
    _check_rules_between_topic_configs(settings, texts)
    return texts


def _normalize_topic_text(name: str, text: str) -> str:
    if name not in TOPIC_SETTINGS:
        raise _make_invalid_config_error(f"Unknown topic config name: {name}")
    try:
        return normalize_setting_text(TOPIC_SETTINGS[name], name, text)
    except InvalidValue as error:
        raise _make_invalid_config_error(str(error)) from None


def _check_rules_between_topic_configs(settings: Settings, texts: Mapping[str, str]) -> None:
    """Check the rules between the settings of a topic, as in Kafka's LogConfig. Raises KafkaError."""
    if settings.get_topic_value("remote.storage.enable", texts):
        raise _make_invalid_config_error(
            "remote.storage.enable=true: Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    lags = (settings.get_topic_value(f"{bound}.compaction.lag.ms", texts) for bound in ("min", "max"))
    conflict = _find_compaction_lag_conflict(*lags)
    if conflict is not None:
        raise _make_invalid_config_error(conflict)


def _make_invalid_config_error(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def validate_broker_overrides(settings: Settings, texts: Mapping[str, str], *, per_broker: bool) -> None:
    """Validate the dynamic settings of this broker (`per_broker`) or of all brokers, together.

    As in Kafka, unknown names are allowed. Raises KafkaError(INVALID_REQUEST) with the name of the setting.
    """
    from minibroker.broker.configs.settings_without_effect import (
        is_listener_only_setting,
        is_per_broker_setting,
        is_read_only_setting,
    )

    _refuse_settings_where(texts, is_read_only_setting, "Cannot update these configs dynamically")
    reason = "These security configs can be dynamically updated only per-listener using the listener prefix"
    _refuse_settings_where(texts, is_listener_only_setting, reason)
    try:
        changed = settings.with_dynamic_configs(**{"broker" if per_broker else "cluster": texts})
        _check_cordoned_directories(changed.log_directories, changed["cordoned.log.dirs"])
    except SettingsError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not per_broker:
        reason = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse_settings_where(texts, is_per_broker_setting, reason)
    _check_cleaner_thread_change(settings["log.cleaner.threads"], changed["log.cleaner.threads"])


def _refuse_settings_where(names: Iterable[str], is_wrong: Callable[[str], bool], reason: str) -> None:
    """Raise KafkaError(INVALID_REQUEST), with `reason` and the names, if `is_wrong` returns true for any."""
    wrong = sorted(name for name in names if is_wrong(name))
    if wrong:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(wrong)}]")


def _check_cleaner_thread_change(current: int, new_count: int) -> None:
    """Reject a change of the number of threads by more than a factor of two, as Kafka does."""
    if new_count < current // 2:
        change, bound = "reduced", "less than half"
    elif new_count > current * 2:
        change, bound = "increased", "more than double"
    else:
        return
    message = f"Log cleaner threads cannot be {change} to {bound} the current value {current}"
    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
