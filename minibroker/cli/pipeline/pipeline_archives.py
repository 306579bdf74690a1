"""What `archive` and `replay` have in common: the format and the place of an archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from minibroker.cli.shared import make_assignments_option

if TYPE_CHECKING:
    from minibroker.pipeline.archiving.archive_tables import ArchiveTable

Format = Literal["parquet", "iceberg", "delta"]
Command = TypeVar("Command", bound=Callable[..., Any])

FORMATS: Final = ("parquet", "iceberg", "delta")


def add_archive_options(help: str) -> Callable[[Command], Command]:
    """`--format` and `--catalog`, as arguments `table_format` and `catalog`, for `locate_archive`."""
    choice = click.Choice(FORMATS)
    catalog = make_assignments_option(
        "--catalog",
        "catalog",
        "A property of pyiceberg's catalog, such as uri, or of delta-rs's object store; name=NAME chooses a catalog of"
        " pyiceberg's own settings.",
    )

    def with_options(command: Command) -> Command:
        named = click.option("--format", "table_format", type=choice, default=FORMATS[0], show_default=True, help=help)
        return named(catalog(command))

    return with_options


def locate_archive(
    table_format: Format, where: str, catalog: tuple[tuple[str, str], ...], compression: str = "zstd"
) -> ArchiveTable:
    """Return the archive at a place, which need not exist. Raises click.UsageError."""
    if table_format == "parquet":
        from minibroker.pipeline.archiving.parquet_archive import ParquetArchive

        if catalog:
            raise click.UsageError("--catalog is for iceberg and delta")
        return ParquetArchive(where, compression)
    if table_format == "iceberg":
        from minibroker.pipeline.archiving.iceberg_archive import IcebergArchive

        return IcebergArchive(where, dict(catalog), compression)
    from minibroker.pipeline.archiving.delta_archive import DeltaArchive

    return DeltaArchive(where, dict(catalog), compression)
