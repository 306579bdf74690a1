"""`minibroker pipeline package`: packs what Spark's executors need, and says how to ship it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click

from minibroker.cli.pipeline.pipeline_shared import REMEDY, make_job_error
from minibroker.quantities import format_bytes


@click.command()
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive.  [default: minibroker-pyXY.tar.gz]",
)
def package(out: Path | None) -> None:
    """Pack this package and its libraries into an archive for the executors of a Spark cluster.

    They need a Python of the same version and platform, and none of our packages.

    \b
    Example:
        minibroker pipeline package --out minibroker.tar.gz
    """
    from minibroker.pipeline.packaging import make_default_file_name, make_executor_settings, write_archive

    path = out or Path(make_default_file_name())
    try:
        libraries = write_archive(path)
    except PackageNotFoundError:
        raise make_job_error(REMEDY) from None
    click.echo(f"{path}: minibroker, {', '.join(libraries)}, {format_bytes(path.stat().st_size)}")
    options = " ".join(f"--conf {name}={value}" for name, value in make_executor_settings(str(path)).items())
    click.echo(f"spark-submit, pyspark and the jobs of minibroker pipeline ship it with\n  {options}")
