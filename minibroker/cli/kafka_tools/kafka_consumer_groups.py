"""`kafka-consumer-groups`: lists, describes, resets and deletes groups of consumers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import click

from minibroker.cli.connecting import Bootstrap
from minibroker.cli.groups.groups_command import delete as delete_command
from minibroker.cli.groups.groups_command import describe as describe_command
from minibroker.cli.groups.groups_command import list_groups
from minibroker.cli.groups.groups_reset import reset_offsets
from minibroker.cli.kafka_tools.tool_options import choose_action, make_server_options, run_command

OF_CONSUMERS: Final = ("--type", "classic", "--type", "consumer")
OFFSETS: Final = (
    ("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10), ("CURRENT-OFFSET", 15), ("LOG-END-OFFSET", 15), ("LAG", 15),
    ("CONSUMER-ID", 15), ("HOST", 15), ("CLIENT-ID", 0),
)  # fmt: skip
MEMBERS: Final = (("GROUP", 15), ("CONSUMER-ID", 15), ("HOST", 15), ("CLIENT-ID", 15), ("#PARTITIONS", 16))
NEW_OFFSETS: Final = (("GROUP", 15), ("TOPIC", 15), ("PARTITION", 10), ("NEW-OFFSET", 0))
PLACES: Final = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", "to_datetime", "by_duration")


@click.command("kafka-consumer-groups")
@make_server_options()
@click.option("--list", "lists", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--reset-offsets", "resets", is_flag=True)
@click.option("--group", "groups", multiple=True)
@click.option("--all-groups", is_flag=True)
@click.option("--members", is_flag=True, help="With --describe.")
@click.option("--offsets", is_flag=True, help="With --describe, which is the default.")
@click.option("--topic", "topics", multiple=True, help="With --reset-offsets: TOPIC or TOPIC:0,1.")
@click.option("--all-topics", is_flag=True)
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--to-offset")
@click.option("--shift-by")
@click.option("--to-datetime")
@click.option("--by-duration")
@click.option("--execute", is_flag=True)
@click.option("--dry-run", is_flag=True)
def kafka_consumer_groups(
    bootstrap: Bootstrap,
    lists: bool,
    describe: bool,
    delete: bool,
    resets: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    members: bool,
    offsets: bool,
    **reset: Any,
) -> None:
    """List, describe, reset and delete groups of consumers."""
    action = choose_action({"list": lists, "describe": describe, "delete": delete, "reset-offsets": resets})
    if members and offsets:
        raise click.UsageError("--members cannot be used with --offsets")
    if action != "list" and bool(groups) == all_groups:
        raise click.UsageError(f"--{action} needs --group or --all-groups")
    names = list(groups) if groups else _list_group_names(bootstrap)
    if action == "list":
        for name in names:
            click.echo(name)
    elif action == "describe":
        for name in names:
            _describe_group(bootstrap, name, members)
    elif action == "delete" and names:
        run_command(delete_command, names, bootstrap)
        deleted = ", ".join(f"'{each}'" for each in names)
        click.echo(f"Deletion of requested consumer groups ({deleted}) was successful.")
    elif action == "reset-offsets":
        _reset_group_offsets(bootstrap, names, **reset)


def _list_group_names(bootstrap: Bootstrap) -> list[str]:
    return [each["group"] for each in json.loads(run_command(list_groups, ["--json", *OF_CONSUMERS], bootstrap))]


def _describe_group(bootstrap: Bootstrap, name: str, shows_members: bool) -> None:
    """Print a group's offsets or members, as Kafka's tool does."""
    described = json.loads(run_command(describe_command, ["--json", "--", name], bootstrap))
    by_id = {each["member"]: each for each in described["members"]}
    if not by_id:
        click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
    if shows_members:
        rows = [
            (name, each["member"], each["host"], each["client"], sum(map(len, each["partitions"].values())))
            for each in described["members"]
        ]
        _print_table(MEMBERS, rows)
        return
    table = []
    for each in described["offsets"]:
        member = by_id.get(each["member"], {})
        owner = (each["member"], member.get("host"), member.get("client"))
        table.append((name, each["topic"], each["partition"], each["committed"], each["end"], each["lag"], *owner))
    _print_table(OFFSETS, table)


def _reset_group_offsets(
    bootstrap: Bootstrap,
    names: list[str],
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    **places: Any,
) -> None:
    if execute and dry_run:
        raise click.UsageError("--execute cannot be used with --dry-run")
    arguments = [text for each in topics for text in ("--topic", each)] + ["--all-topics"] * all_topics
    for option in PLACES:
        if places[option] not in (None, False):
            arguments.append(f"--{option.replace('_', '-')}")
            arguments += [] if places[option] is True else [places[option]]
    rows: list[Iterable[object]] = []
    for name in names:
        options = ["--json", *arguments, *["--execute"] * execute, "--", name]
        offsets = json.loads(run_command(reset_offsets, options, bootstrap))["offsets"]
        rows += [(name, each["topic"], each["partition"], each["new"]) for each in offsets]
    _print_table(NEW_OFFSETS, rows)


def _print_table(columns: Iterable[tuple[str, int]], rows: Iterable[Iterable[object]]) -> None:
    """Print a table whose columns are as wide as Kafka's, or wider if a cell is."""
    heads, least = zip(*columns, strict=True)
    table = [heads, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(width, *(len(row[index]) for row in table)) if width else 0 for index, width in enumerate(least)]
    click.echo()
    for row in table:
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
