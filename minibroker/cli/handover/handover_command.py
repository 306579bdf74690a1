"""`minibroker handover`: what is needed for a move to another Kafka."""

from __future__ import annotations

import json

import click

from minibroker.cli.administration import connect_client
from minibroker.cli.connecting import Bootstrap, add_connection_options
from minibroker.cli.handover.handover_report import list_settings_unlike_kafka, print_report
from minibroker.cli.handover.handover_shell import write_script
from minibroker.cli.handover.handover_state import HandoverState, collect_state
from minibroker.cli.handover.handover_strimzi import write_resources
from minibroker.cli.handover.handover_terraform import write_configuration
from minibroker.cli.shared import make_json_option

FORMATS = ("report", "sh", "strimzi", "terraform")


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
        from minibroker.cli.handover.handover_directory import keep_settings_of_directory_only, serve_directory_copy

        with serve_directory_copy(path) as servers, connect_client(Bootstrap(servers, ())) as client:
            state = keep_settings_of_directory_only(collect_state(client, path))
    if as_json:
        click.echo(json.dumps(_make_handover_document(state)))
    elif form == "sh":
        click.echo(write_script(state), nl=False)
    elif form == "strimzi":
        click.echo(write_resources(state, cluster), nl=False)
    elif form == "terraform":
        click.echo(write_configuration(state), nl=False)
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
