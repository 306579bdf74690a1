"""A handover as a report: what is there, and which settings are not those of Kafka, or of clusters in production."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from minibroker.cli.administration import DEFAULT_CONFIG
from minibroker.cli.handover.handover_state import HandoverState
from minibroker.cli.shared import print_table
from minibroker.protocol.legible import format_first_names
from minibroker.quantities import format_count

SECRET: Final = "(secret)"
# What clusters in production have, where Kafka's default is made for trying it out.
IN_PRODUCTION: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
OWN: Final = {"node.id", "broker.id", "process.roles", "controller.listener.names"}  # each cluster has its own


class SettingDifference(NamedTuple):
    """A setting, its value here, Kafka's default, and what clusters in production have if that is another one."""

    setting: str
    here: str | None
    default: str | None
    production: str | None


def list_settings_unlike_kafka(state: HandoverState) -> list[SettingDifference]:
    """Return the settings that are not as in production, where that is known, or else not Kafka's defaults."""
    return list(_iterate_settings_unlike_kafka(state))


def _iterate_settings_unlike_kafka(state: HandoverState) -> Iterator[SettingDifference]:
    from minibroker.broker.configs.settings import get_broker_setting_declaration
    from minibroker.broker.configs.settings_values import format_setting_value

    for entry in state.settings:
        row = get_broker_setting_declaration(entry.name)
        if entry.name in OWN or not row.in_kafka or row.internal:
            continue
        default = format_setting_value(row.default if row.kafka_default is None else row.kafka_default)
        production = IN_PRODUCTION.get(entry.name)
        if entry.is_sensitive:
            if entry.config_source != DEFAULT_CONFIG:
                yield SettingDifference(entry.name, SECRET, None, None)
            continue
        expected = production or default or ""
        if (entry.value or "") != expected and not (entry.value is None and row.fallbacks):
            yield SettingDifference(entry.name, entry.value, default, production)


def print_report(state: HandoverState) -> None:
    """Print the report."""
    counts = {
        "topic": len(state.topics),
        "user": len({row.user for row in state.users}),
        "ACL": len(state.acls),
        "quota": len(state.quotas),
        "group": len(state.offsets),
    }
    click.echo(
        f"{state.source} has {', '.join(format_count(count, what) for what, count in counts.items())} with offsets"
    )
    for note in (*_iterate_report_notes(state), *(f"no format has {each}" for each in state.left_out)):
        click.echo(f"- {note}")
    click.echo()
    print_table(["setting", "here", "Kafka's default", "in production"], list_settings_unlike_kafka(state))


def _iterate_report_notes(state: HandoverState) -> Iterator[str]:
    alone = [topic.name for topic in state.topics if topic.replicas == 1]
    if alone:
        yield f"topics with one replica, which the loss of a broker takes away: {format_first_names(alone)}"
    if state.users:
        yield "passwords are in no format: each user needs its password again"
    if state.offsets:
        yield "set the offsets of groups after the records: they mean the same only if offsets have stayed the same"
