"""`minibroker lab`: the folder of the lab, a broker that runs in a browser's tab."""

from __future__ import annotations

from pathlib import Path

import click

DIRECTORY = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", metavar="DIRECTORY", type=DIRECTORY)
@click.option(
    "--pyodide",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="A folder with the files of the npm package pyodide, and the wheels msgspec and cramjam for it.",
)
def lab(folder: Path, pyodide: Path) -> None:
    """Write the lab into a folder: a page in which a broker runs, that any server of files serves.

    `.ci/lab` in a clone of minibroker also gets the files of Pyodide, which is Python for browsers.

    \b
    Example:
        minibroker lab site/lab --pyodide node_modules/pyodide
    """
    from minibroker.lab.writing import LabError, write_lab

    try:
        size_bytes = write_lab(folder, pyodide)
    except LabError as error:
        raise click.UsageError(str(error)) from None
    click.echo(f"{folder} has the lab, {size_bytes / 1e6:.1f} MB")
