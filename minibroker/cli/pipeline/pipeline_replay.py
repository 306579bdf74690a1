"""`minibroker pipeline replay`: writes archived topics to a broker, with a report per partition.

`minibroker.pipeline.archiving.replay_job` does the work.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli import variables
from minibroker.cli.connecting import (
    Bootstrap,
    add_client_setting_options,
    add_timeout_option,
    get_default_servers,
    make_server_option,
    require_connection,
)
from minibroker.cli.pipeline import pipeline_shared
from minibroker.cli.places import PartitionPlace, parse_offset_or_time
from minibroker.cli.shared import make_assignments_option, make_json_option, parse_assignment, print_table

if TYPE_CHECKING:
    from minibroker.pipeline.archiving.archive_tables import ArchivedPartition
    from minibroker.pipeline.archiving.replay_job import ReplayTask

FIELDS: Final = ("topic", "partition", "to", "archived", "written", "already")
HEAD: Final = ("topic", "partition", "to", "archived", "written", "there already")


@click.command()
@click.option("--from", "archive", metavar="DIR", required=True, help="The archive: a directory, or a URL.")
@pipeline_shared.add_archive_options("What the archive is.")
@make_server_option(f"Any Kafka.  [env var: {variables.SERVER}]")
@click.option(
    "--topic", "topics", metavar="NAME", multiple=True, help="An archived topic; by default all. Can be repeated."
)
@click.option("--topic-map", metavar="OLD=NEW", type=parse_assignment, multiple=True, help="Rename. Can be repeated.")
@click.option(
    "--start", metavar="WHERE", type=parse_offset_or_time, help="An archived offset or a time; by default all."
)
@click.option("--end", metavar="WHERE", type=parse_offset_or_time, help="End before this offset or time.")
@click.option("--repartition", is_flag=True, help="Choose partitions by key, instead of keeping them.")
@make_assignments_option(
    "--config", "configs", "A config of new topics, beside the archived ones; empty to leave one out."
)
@click.option("--id", "replay_id", metavar="NAME", help="The name of this replay.  [default: by archive and topics]")
@add_client_setting_options
@add_timeout_option
@pipeline_shared.add_engine_option
@pipeline_shared.add_spark_options
@make_json_option("Print a JSON object of what was written.")
def replay(
    archive: str,
    table_format: pipeline_shared.TableFormat,
    catalog: tuple[tuple[str, str], ...],
    servers: str | None,
    topics: tuple[str, ...],
    topic_map: tuple[tuple[str, str], ...],
    start: PartitionPlace | None,
    end: PartitionPlace | None,
    repartition: bool,
    configs: tuple[tuple[str, str], ...],
    replay_id: str | None,
    client: tuple[tuple[str, str], ...],
    connect_timeout_s: float | None,
    engine: pipeline_shared.EngineName,
    master: str,
    conf: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Write archived topics to a broker: each record once, with the order and timestamps of each partition.

    After a kill, run it again to continue. A completed replay that is run again writes what was archived since. Another
    --id starts over. Missing topics are created with their archived configs, and with retention.ms=-1, as archived
    records are old.

    \b
    Example:
        minibroker pipeline replay --from archive --bootstrap-server 127.0.0.1:9092 --topic-map orders=orders-again
    """
    servers = servers or get_default_servers()
    if servers is None:
        raise click.UsageError("name the broker with --bootstrap-server")
    require_connection(Bootstrap(servers, client, connect_timeout_s))

    from minibroker.pipeline.archiving import replay_job
    from minibroker.pipeline.archiving.archive_job import find_newest_note
    from minibroker.pipeline.archiving.archive_tables import list_archived_partitions
    from minibroker.pipeline.archiving.archived_topics import choose_target_configs, prepare_topics
    from minibroker.pipeline.sink.delivery import connect_client

    settings = replay_job.replay_settings(servers, dict(client))
    table = pipeline_shared.locate_archive(table_format, archive, catalog)
    if not table.exists():
        raise pipeline_shared.make_job_error(f"there is no archive {archive}")
    archived = _choose_topics(list_archived_partitions(table), topics)
    targets = _map_targets(archived, topic_map)
    part = replay_job.ReplayRange(convert_to_offset_or_time(start), convert_to_offset_or_time(end))
    whole = archive if "://" in archive or catalog else str(Path(archive).resolve())  # wherever the command runs
    name = replay_id or replay_job.make_replay_id(whole, targets, repartition, part)
    task = replay_job.ReplayTask(settings, name, targets, repartition)
    kept = choose_target_configs(find_newest_note(table).configs, targets, {each.partition.topic for each in archived})
    with connect_client(settings) as connected:
        needed = replay_job.find_needed_topics(archived, task)
        prepared = prepare_topics(connected, needed, dict(configs), any_count=repartition, archived=kept)
    for remark in prepared.remarks:
        click.echo(remark, err=True)
    locally = pipeline_shared.runs_locally(engine, records=sum(each.records for each in archived))
    with pipeline_shared.start_engine(locally, master, conf) as runs:
        done = replay_job.replay_archive(table, task, archived, part=part, engine=runs)
    written = {each.partition: each.records for each in done}
    rows = [
        _make_partition_row(task, each, written.get(each.partition, 0), part == replay_job.ReplayRange())
        for each in archived
    ]
    if as_json:
        partition_rows = [dict(zip(FIELDS, row, strict=True)) for row in rows]
        click.echo(json.dumps({"id": name, "created": prepared.made, "partitions": partition_rows}))
    else:
        print_table(HEAD, rows)


def convert_to_offset_or_time(place: PartitionPlace | None) -> int | datetime | None:
    """Return an offset, a time, or None for no limit. Raises click.UsageError for any other place."""
    if place is None:
        return None
    if place.partition is not None or place.kind not in ("offset", "time"):
        raise click.UsageError("--start and --end are an offset or a time")
    return place.number if place.kind == "offset" else datetime.fromtimestamp(place.number / 1000, UTC)


def _choose_topics(archived: list[ArchivedPartition], topics: tuple[str, ...]) -> list[ArchivedPartition]:
    """Return the archived partitions of these topics, or all if none are named. Raises click.ClickException."""
    found = {each.partition.topic for each in archived}
    for topic in topics:
        if topic not in found:
            raise pipeline_shared.make_job_error(f"the archive has no topic {topic}")
    if not archived:
        raise pipeline_shared.make_job_error("there is nothing in the archive")
    return [each for each in archived if not topics or each.partition.topic in topics]


def _map_targets(archived: list[ArchivedPartition], topic_map: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the target of each archived topic that has a named one. Raises click.ClickException for others."""
    found = {each.partition.topic for each in archived}
    for topic, target in topic_map:
        if topic not in found:
            raise pipeline_shared.make_job_error(
                f"--topic-map {topic}={target}: {topic} is none of the topics to replay, {', '.join(sorted(found))}"
            )
    return dict(topic_map)


def _make_partition_row(task: ReplayTask, archived: ArchivedPartition, written: int, is_whole: bool) -> tuple[Any, ...]:
    """Return a row of the report. The records that were there before are unknown unless all are replayed."""
    topic, partition = archived.partition
    already = archived.records - written if is_whole else None
    return topic, partition, task.get_target(topic), archived.records, written, already
