"""`minibroker consume --out`: records as a file of Parquet or Arrow, by the pipeline's readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from minibroker.cli.connecting import Bootstrap
from minibroker.cli.places import PartitionPlace, RequestedTopic, is_pattern
from minibroker.cli.shared import make_operation_error

if TYPE_CHECKING:
    from minibroker.pipeline.log_opening import Log, Place

SUFFIXES: Final = (".parquet", ".arrow")
REMEDY: Final = "--out needs the extra arrow: python3 -m pip install pyarrow numpy"


def write_records_file(
    path: str,
    bootstrap: Bootstrap,
    topics: Sequence[RequestedTopic],
    partitions: Sequence[int],
    start: Sequence[PartitionPlace],
    end: Sequence[PartitionPlace],
    *,
    committed: bool,
) -> int:
    """Write the records of topics to a file, and return how many. Raises click.ClickException."""
    if Path(path).suffix not in SUFFIXES:
        raise click.UsageError(f"--out: {path} ends with neither of {', '.join(SUFFIXES)}")
    try:
        from minibroker.pipeline.log_source import PipelineError

        with _replace_file_when_complete(path) as unfinished:
            count = _write_table_file(
                str(unfinished), path, _open_logs(bootstrap, topics, partitions, start, end, committed)
            )
    except ImportError:
        raise make_operation_error(REMEDY) from None
    except (OSError, PipelineError) as error:
        raise make_operation_error(str(error)) from None
    return count


def _open_logs(
    bootstrap: Bootstrap,
    topics: Sequence[RequestedTopic],
    partitions: Sequence[int],
    start: Sequence[PartitionPlace],
    end: Sequence[PartitionPlace],
    committed: bool,
) -> list[Log]:
    from minibroker.pipeline import open

    if any(is_pattern(name) for name, _ in topics):
        raise click.UsageError("--out takes names of topics, and no patterns")
    return [
        open(
            bootstrap.servers,
            name,
            partitions=indexes or partitions,
            start=_choose_only_place(start, "earliest"),
            end=_choose_only_place(end, "latest"),
            isolation="read_committed" if committed else "read_uncommitted",
            client=dict(bootstrap.settings),
        )
        for name, indexes in topics
    ]


def _choose_only_place(places: Sequence[PartitionPlace], option: str) -> Place:
    """Return an edge for all partitions; `option` is that of the log itself. Raises click.UsageError for others."""
    where = places[0] if places else PartitionPlace(option)
    if len(places) > 1 or where.partition is not None or where.kind not in (option, "offset", "time"):
        raise click.UsageError("with --out, --from and --to are one offset or time each")
    if where.kind == "time":
        return datetime.fromtimestamp(where.number / 1000, UTC)
    return where.number if where.kind == "offset" else None


@contextmanager
def _replace_file_when_complete(path: str) -> Iterator[Path]:
    """Yield a file beside another one, whose name it takes when it is whole. An error removes it."""
    unfinished = Path(path).with_name(f".{Path(path).name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _write_table_file(unfinished: str, path: str, logs: Sequence[Log]) -> int:
    """Write the rows, as they come."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, count = logs[0].records().schema, 0
    writer: Any = (
        pq.ParquetWriter(unfinished, schema, compression="zstd")
        if path.endswith(".parquet")
        else pa.ipc.new_file(unfinished, schema)
    )
    with writer:
        for log in logs:
            for batch in log.records():
                writer.write_batch(batch)
                count += batch.num_rows
    return count
