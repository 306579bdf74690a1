"""Configs found in the metadata log that this broker cannot use, such as those of a Kafka that knows more settings.

What may be set is checked before it is recorded, in `settings`; here is only what a start makes of what it finds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from minibroker.broker.image import BROKER_RESOURCE, TOPIC_RESOURCE
from minibroker.broker.settings_table import BROKER_SETTINGS, TOPIC_SETTINGS, Setting
from minibroker.broker.settings_values import InvalidValue, parse_value

log = logging.getLogger("minibroker.configs")

TABLES: dict[int, Mapping[str, Setting]] = {TOPIC_RESOURCE: TOPIC_SETTINGS, BROKER_RESOURCE: BROKER_SETTINGS}


def drop_unusable(configs: Mapping[tuple[int, str], dict[str, str]]) -> None:
    """Take out of `configs` (texts by name, by resource type and name) what is unknown or wrong, and warn of each."""
    for (resource_type, resource), texts in configs.items():
        if resource_type not in TABLES:
            continue
        table = TABLES[resource_type]
        for name in list(texts):
            reason = _objection(table, name, texts[name])
            if reason is not None:
                kind = "topic" if resource_type == TOPIC_RESOURCE else "broker"
                log.warning("the metadata sets %s of %s %s: passed over, %s", name, kind, resource or "(all)", reason)
                del texts[name]


def _objection(table: Mapping[str, Setting], name: str, text: str) -> str | None:
    if name not in table:
        return "as this broker does not know it"
    try:
        parse_value(table[name], name, text)
    except InvalidValue as error:
        return str(error)
    return None
