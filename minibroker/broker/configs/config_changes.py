"""Changes of configs, applied to their texts: SET, DELETE, and APPEND and SUBTRACT on lists (KIP-339).

Pure: `settings` validates the outcome, `handlers/configs` handles the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from minibroker.broker.configs.settings_table import ConfigType, Setting
from minibroker.broker.configs.settings_values import format_setting_value
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import MAX_STRING_BYTES

# Batches that were stored while it was true must be recognised as long as the topic exists.
KEPT = {"record.attributes.elide": "false"}


class ChangeKind(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A change of one config. `value` is "" for DELETE."""

    name: str
    kind: ChangeKind
    value: str


def apply_config_changes(
    settings: Mapping[str, Setting], current_texts: Mapping[str, str], changes: Iterable[ConfigChange]
) -> dict[str, str]:
    """Return the config texts by name that the changes make of `current_texts`.

    Raises KafkaError(INVALID_CONFIG) for APPEND or SUBTRACT on a setting that is not a list in `settings`.
    """
    texts = dict(current_texts)
    for name, kind, value in changes:
        if kind is ChangeKind.SET:
            texts[name] = value
        elif kind is ChangeKind.DELETE:
            texts.pop(name, None)
        else:
            texts[name] = _apply_list_change(settings.get(name), texts.get(name), ConfigChange(name, kind, value))
    return texts


def _apply_list_change(setting: Setting | None, text: str | None, change: ConfigChange) -> str:
    """Return the list `text` after APPEND or SUBTRACT; if it is None, as unset, start from the setting's default."""
    if setting is None or setting.type is not ConfigType.LIST:
        message = f"Can't {change.kind.name} to key {change.name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)
    elements = _split_list(format_setting_value(setting.default) or "" if text is None else text)
    given = _split_list(change.value)
    if change.kind is ChangeKind.APPEND:
        return ",".join(dict.fromkeys((*elements, *given)))
    return ",".join(element for element in elements if element not in given)


def _split_list(text: str) -> list[str]:
    return [element.strip() for element in text.split(",") if element.strip()]


def check_config_text_sizes(texts: Iterable[str | None]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for a text that is too long for a record or an answer."""
    if any(text is not None and len(text.encode()) > MAX_STRING_BYTES for text in texts):
        reason = f"it exceeds the maximum value size of {MAX_STRING_BYTES} bytes."
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The configuration value cannot be added because {reason}")


def find_config_changes(old_configs: Mapping[str, str], new_configs: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes from `old_configs` to `new_configs`: new texts, and None for removed ones.

    A setting in `KEPT` is not removed, but set to the value there.
    """
    changed: dict[str, str | None] = {name: KEPT.get(name) for name in old_configs if name not in new_configs}
    changed.update({name: text for name, text in new_configs.items() if old_configs.get(name) != text})
    return changed
