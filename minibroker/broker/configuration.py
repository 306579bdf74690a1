"""The sources of settings: `server.properties`, the environment, the command line; later ones override earlier ones.

Names are checked here, so that an error can name the source; `settings` interprets the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from os import PathLike

from minibroker.broker.configs.listeners import Listener, list_controller_listeners, make_broker_listeners
from minibroker.broker.configs.settings import Settings, SettingsError, get_broker_setting_declaration
from minibroker.broker.configs.settings_table import BROKER_SETTINGS, LEADER_ONLY, RACK_AWARE, TOPIC_SETTINGS
from minibroker.broker.configs.settings_values import InvalidValue, parse_setting_value
from minibroker.named_tuples import NamedTuple

ENVIRONMENT_PREFIX = "MINIBROKER_"
KAFKA_PREFIX = "KAFKA_"
# Variables of Kafka's images that are no settings, but options of a JVM, end or begin like this.
FOR_JAVA = ("OPTS", "KAFKA_JMX_", "KAFKA_LOG4J_", "KAFKA_TOOLS_LOG4J_")
# A properties file has a few KiB; a larger file, such as a log, was named by mistake.
FILE_SIZE_MAX = 1 << 20


# Settings that Kafka had before 3.0, and what replaced them.
RENAMED = {
    "port": "listeners",
    "host.name": "listeners",
    "advertised.port": "advertised.listeners",
    "advertised.host.name": "advertised.listeners",
}


class LoadedSettings(NamedTuple):
    """The settings of a start, and a warning for each setting without the expected effect."""

    settings: Settings
    warnings: tuple[str, ...]


class _TextWithSource(NamedTuple):
    """A text and its source, for error messages."""

    text: str
    origin: str


def load_settings(
    file: str | PathLike[str] | None,
    environment: Mapping[str, str],
    assignments: Iterable[str],
    *,
    kafka_variables: bool = False,
) -> LoadedSettings:
    """Read settings from a properties file (or None), environment variables and `key=value` texts; later ones override.

    With `kafka_variables`, variables such as KAFKA_LOG_RETENTION_MS count, too; in them, as in Kafka's images, unknown
    names are no mistake. Raises SettingsError with one line that names the source of the mistake. Only the file is
    accessed.
    """
    given: dict[str, _TextWithSource] = {}
    unknown: list[str] = []
    if file is not None:
        given.update(_read_file_settings(file))
    if kafka_variables:
        others = _read_environment_settings(environment, KAFKA_PREFIX)
        unknown = [
            _make_no_effect_warning(others.pop(name), name) for name in sorted(others) if not _is_known_setting(name)
        ]
        given.update(others)
    given.update(_read_environment_settings(environment, ENVIRONMENT_PREFIX))
    given.update(_parse_setting_assignments(assignments))
    inert = [name for name in sorted(given) if _is_without_effect(name, given[name].origin)]
    texts = {name: _validate_setting_text(name, *given[name]) for name in given}
    settings = Settings(texts)
    listeners = make_broker_listeners(settings)
    _check_sasl_and_tls_of_listeners(listeners, settings)
    more = (
        _iterate_listener_warnings(given, settings),
        _list_controller_listener_warnings(settings),
        _iterate_state_topic_warnings(settings),
        _iterate_replica_selector_warnings(settings),
    )
    warnings = (*unknown, *map(_make_unknown_setting_warning, inert), *chain.from_iterable(more))
    return LoadedSettings(settings, warnings)


def _check_sasl_and_tls_of_listeners(listeners: Iterable[Listener], settings: Settings) -> None:
    """Raise SettingsError for keys, certificates and SASL mechanisms with which a listener cannot be opened."""
    for listener in listeners:
        if listener.requires_sasl:
            from minibroker.broker.security.mechanisms import get_enabled_mechanisms  # as below

            get_enabled_mechanisms(settings, listener.name)
        if listener.has_tls:
            from minibroker.broker.security.tls import make_tls_settings  # a plain start does without it

            make_tls_settings(listener.name, listener.security_protocol, settings)


def _read_file_settings(file: str | PathLike[str]) -> dict[str, _TextWithSource]:
    # Most starts have no file.
    from minibroker.broker.configs.properties import MalformedProperties, parse_java_properties

    try:
        with open(file, "rb") as stream:
            content = stream.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror or error}") from None
    if len(content) > FILE_SIZE_MAX:
        raise SettingsError(f"{file}: larger than {FILE_SIZE_MAX} bytes, so it is not a properties file")
    try:
        # Java reads properties as ISO-8859-1, and so does Kafka: other characters are written \uXXXX.
        pairs = list(parse_java_properties(content.decode("iso-8859-1")))
    except MalformedProperties as error:
        raise SettingsError(f"{file}: {error}") from None
    return {pair.key: _TextWithSource(pair.value, f"{file} line {pair.line}") for pair in pairs}


def _read_environment_settings(environment: Mapping[str, str], prefix: str) -> dict[str, _TextWithSource]:
    given = {}
    for variable, text in environment.items():
        if variable.startswith(prefix):
            given[make_setting_name_of_variable(variable)] = _TextWithSource(text, f"environment variable {variable}")
    return given


def make_setting_name_of_variable(variable: str) -> str:
    """Return `log.retention.ms` for MINIBROKER_LOG_RETENTION_MS or KAFKA_LOG_RETENTION_MS.

    As in the image apache/kafka, two _ are a _, and three are a dash.
    """
    name = variable.partition("_")[2].lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _make_no_effect_warning(given_setting: _TextWithSource, name: str) -> str:
    variable = given_setting.origin.rpartition(" ")[2]
    is_for_java = variable.startswith(FOR_JAVA) or variable.endswith(FOR_JAVA)
    return f"{given_setting.origin} has no effect: {'there is no JVM' if is_for_java else f'unknown setting {name}'}"


def _parse_setting_assignments(assignments: Iterable[str]) -> dict[str, _TextWithSource]:
    given = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator:
            raise SettingsError(f"--set {assignment}: not of the form key=value")
        name = name.strip()
        shown = name if get_broker_setting_declaration(name).is_sensitive else assignment
        given[name] = _TextWithSource(text, f"--set {shown}")
    return given


def _validate_setting_text(name: str, text: str, source: str) -> str:
    """Return `text`. Raises SettingsError, which names the source, if it is no value of this setting."""
    try:
        parse_setting_value(get_broker_setting_declaration(name), name, text)
    except InvalidValue as error:
        raise SettingsError(f"{source}: {error}") from None
    return text


def _is_without_effect(name: str, source: str) -> bool:
    """Return whether the setting is Kafka's and has no effect here. Raises SettingsError for an unknown name."""
    if _is_known_setting(name):
        return not get_broker_setting_declaration(name).has_effect
    from minibroker.broker.configs.settings_without_effect import KNOWN_WITHOUT_EFFECT

    raise SettingsError(f"{source}: unknown setting {name}{_make_name_suggestion(name, KNOWN_WITHOUT_EFFECT)}")


def _is_known_setting(name: str) -> bool:
    if name in BROKER_SETTINGS:
        return True
    # Needed only for settings that are not in the table; a plain start does without it.
    from minibroker.broker.configs.settings_without_effect import KNOWN_WITHOUT_EFFECT, LISTENER_PREFIX

    return name in KNOWN_WITHOUT_EFFECT or name.startswith(LISTENER_PREFIX)


def _make_name_suggestion(name: str, known_names: Iterable[str]) -> str:
    """Return what follows the name of an unknown setting in an error: the name that may be meant, or nothing."""
    if name in TOPIC_SETTINGS:
        return f" (a topic's; the broker's is {TOPIC_SETTINGS[name].name})" if TOPIC_SETTINGS[name].name != name else ""
    if name in RENAMED:
        return f"; did you mean {RENAMED[name]}?"
    from minibroker.suggestions import format_suggestion_of_similar_name  # here: most names are known

    return format_suggestion_of_similar_name(name, [*BROKER_SETTINGS, *known_names])


def _make_unknown_setting_warning(name: str) -> str:
    return f"{name} is accepted by Kafka but has no effect here: {get_broker_setting_declaration(name).inert}"


def _iterate_listener_warnings(given_names: Iterable[str], settings: Settings) -> Iterator[str]:
    """Yield a warning for each given setting of a listener that does not exist."""
    if any(name.startswith("listener.name.") for name in given_names):
        from minibroker.broker.configs.settings_without_effect import find_listener_of_setting

        names = {listener.name.lower() for listener in make_broker_listeners(settings)}
        names |= {name.lower() for name in list_controller_listeners(settings)}
        for name in sorted(given_names):
            if find_listener_of_setting(name) not in (None, *names):
                yield f"{name} has no effect: listeners has no {(find_listener_of_setting(name) or '').upper()}"


def _list_controller_listener_warnings(settings: Settings) -> list[str]:
    return [
        f"listener {name} is not opened: it is a controller's, and the controller is part of this process"
        for name in list_controller_listeners(settings)
    ]


def _iterate_state_topic_warnings(settings: Settings) -> Iterator[str]:
    """Yield warnings of settings with which no topic of the coordinators can be created; existing ones are used."""
    row = TOPIC_SETTINGS["segment.bytes"]
    for name in ("offsets.topic.segment.bytes", "transaction.state.log.segment.bytes"):
        try:
            parse_setting_value(row, "segment.bytes", str(settings[name]))
        except InvalidValue as error:
            yield f"{name} is too small for its topic to be created: {error}"


def _iterate_replica_selector_warnings(settings: Settings) -> Iterator[str]:
    """Yield a warning if the replica selector is a class of the user's own, as there is no JVM to run it."""
    name = "replica.selector.class"
    if settings[name] not in (None, "", LEADER_ONLY, RACK_AWARE):
        yield f"{name}={settings[name]} is not known: consumers read from the leader"
