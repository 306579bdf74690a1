"""Completion of names in a shell. Topics and groups come from the server; there are none if it does not answer at once.

Each function has the signature that click's `shell_complete` wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from minibroker.cli.connecting import make_bootstrap, make_client, merge_client_settings

if TYPE_CHECKING:
    from minibroker.client.blocking import Client

TIMEOUT_S: Final = 0.5
NAMES_MAX: Final = 1_000  # more than a person reads


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the server; Kafka's own only after an underscore."""
    from minibroker.cli.administration import get_all_topics

    found = _request_names(context, get_all_topics)
    return _filter_by_prefix(incomplete, (name for name in found if not name.startswith("__") or incomplete))


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of the server."""
    from minibroker.cli.groups.groups_facts import list_group_names

    return _filter_by_prefix(incomplete, _request_names(context, list_group_names))


def complete_messages(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of messages that `minibroker show` knows."""
    from minibroker.protocol.describing import list_message_names

    return _filter_by_prefix(incomplete, list_message_names())


def complete_broker_settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of a broker's settings, each with "=" behind it."""
    from minibroker.broker.configs.settings_table import SETTINGS

    return _filter_by_prefix(incomplete, (f"{row.name}=" for row in SETTINGS if row.name and not row.internal))


def complete_topic_settings(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of a topic's settings, with "=" behind them where a value belongs to it."""
    from minibroker.broker.configs.settings_table import TOPIC_SETTINGS

    end = "" if parameter.name == "deleted" else "="
    return _filter_by_prefix(incomplete, (f"{name}{end}" for name in TOPIC_SETTINGS))


def _filter_by_prefix(prefix: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(prefix))[:NAMES_MAX]


def _request_names(context: click.Context, list_names: Callable[[Client], Iterable[str]]) -> Iterable[str]:
    """Return the names that a server tells, none if it cannot be asked: who completes a name wants no errors."""
    from minibroker.client.client_errors import ClientError, SettingError

    given = context.params
    try:
        settings = merge_client_settings(given.get("config_files") or (), given.get("client") or ())
        with make_client(make_bootstrap(given.get("servers"), settings, TIMEOUT_S, "info")) as client:
            client.connect_to_any_node()
            return list_names(client)
    except (ClientError, SettingError, click.ClickException):
        return ()
