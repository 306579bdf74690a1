"""`minibroker handover`: what is needed for a move to another Kafka."""

from __future__ import annotations

import json

import click

from minibroker.cli.administration import connected
from minibroker.cli.connecting import Bootstrap, connection_options
from minibroker.cli.handover.handover_report import differences, print_report
from minibroker.cli.handover.handover_shell import script_of
from minibroker.cli.handover.handover_state import State, state_of
from minibroker.cli.handover.handover_strimzi import resources_of
from minibroker.cli.handover.handover_terraform import configuration_of
from minibroker.cli.shared import json_option

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
@connection_options
@json_option("Print everything as a JSON object.")
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
        with connected(bootstrap) as client:
            state = state_of(client, bootstrap.servers)
    else:
        from minibroker.cli.handover.handover_directory import of_directory, served_copy

        with served_copy(path) as servers, connected(Bootstrap(servers, ())) as client:
            state = of_directory(state_of(client, path))
    if as_json:
        click.echo(json.dumps(_as_json(state)))
    elif form == "sh":
        click.echo(script_of(state), nl=False)
    elif form == "strimzi":
        click.echo(resources_of(state, cluster), nl=False)
    elif form == "terraform":
        click.echo(configuration_of(state), nl=False)
    else:
        print_report(state)


def _as_json(state: State) -> dict[str, object]:
    offsets = {
        group: [{"topic": topic, "partition": index, "offset": offset} for (topic, index), offset in places.items()]
        for group, places in state.offsets.items()
    }
    named = ("topics", "configs", "users", "acls", "quotas")
    return {
        "source": state.source,
        **{name: [row._asdict() for row in getattr(state, name)] for name in named},
        "offsets": offsets,
        "settings": [row._asdict() for row in differences(state)],
        "left_out": state.left_out,
    }
