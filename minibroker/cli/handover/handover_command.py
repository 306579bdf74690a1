"""`minibroker handover`: what is needed for a move to another Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from minibroker.cli.administration import DEFAULT_CONFIG, connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.handover.handover_shell import make_shell_script
from minibroker.cli.handover.handover_state import HandoverState, collect_state
from minibroker.cli.handover.handover_strimzi import make_strimzi_resources
from minibroker.cli.handover.handover_terraform import make_terraform_configuration
from minibroker.cli.shared import make_json_option, print_table
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
FORMATS = ("report", "sh", "strimzi", "terraform")


class SettingDifference(NamedTuple):
    """A setting, its value here, Kafka's default, and what clusters in production have if that is another one."""

    setting: str
    here: str | None
    default: str | None
    production: str | None


def list_settings_unlike_kafka(state: HandoverState) -> list[SettingDifference]:
    """Return the broker settings that differ from `IN_PRODUCTION`, or else from Kafka's defaults."""
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
    """Print what a cluster has, which settings differ from Kafka's, and what is left out."""
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


@click.command()
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMATS),
    default="report",
    show_default=True,
    help="A report, a script that calls Kafka's tools, or resources.",
)
@click.option("--cluster", metavar="NAME", default="my-cluster", show_default=True, help="Strimzi's Kafka resource.")
@click.option(
    "--path",
    type=click.Path(exists=True, file_okay=False),
    help="A data directory without a running broker, instead of a server.",
)
@add_connection_options
@make_json_option("Print everything as a JSON object.")
def handover(form: str, cluster: str, path: str | None, bootstrap: Bootstrap, as_json: bool) -> None:
    """Write what another Kafka needs to take over from any Kafka: topics, configs, users, ACLs, quotas, and the offsets
    of groups; or report it, with the settings that differ from Kafka's defaults.

    Passwords and records are not in it.

    \b
    Example:
        minibroker handover
        minibroker handover --to sh > handover.sh
        minibroker handover --to strimzi --cluster production | kubectl apply -f -
    """
    if path is None:
        with connect_client(bootstrap) as client:
            state = collect_state(client, bootstrap.servers)
    else:
        from minibroker.cli.handover.handover_directory import drop_settings_of_serving_process, serve_directory_copy

        with serve_directory_copy(path) as servers, connect_client(Bootstrap(servers, ())) as client:
            state = drop_settings_of_serving_process(collect_state(client, path))
    if as_json:
        click.echo(json.dumps(_make_handover_document(state)))
    elif form == "sh":
        click.echo(make_shell_script(state), nl=False)
    elif form == "strimzi":
        click.echo(make_strimzi_resources(state, cluster), nl=False)
    elif form == "terraform":
        click.echo(make_terraform_configuration(state), nl=False)
    else:
        print_report(state)


def _make_handover_document(state: HandoverState) -> dict[str, object]:
    offsets = {
        group: [{"topic": topic, "partition": index, "offset": offset} for (topic, index), offset in places.items()]
        for group, places in state.offsets.items()
    }
    named = ("topics", "configs", "users", "acls", "quotas")
    return {
        "source": state.source,
        **{name: [row._asdict() for row in getattr(state, name)] for name in named},
        "offsets": offsets,
        "settings": [row._asdict() for row in list_settings_unlike_kafka(state)],
        "left_out": state.left_out,
    }
