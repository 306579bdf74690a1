"""`minibroker pipeline prepare`: saves Java's classes, so that later jobs start sooner."""

from __future__ import annotations

import click

from minibroker.quantities import bytes_text


@click.command()
def prepare() -> None:
    """Save the classes that Spark's Java loads, so that later jobs start with half of the CPU.

    It takes a minute, once for each Java and each Spark, and some 200 MB in ~/.cache/minibroker.

    \b
    Example:
        minibroker pipeline prepare
    """
    from minibroker.pipeline.saved_classes import save_classes
    from minibroker.pipeline.session import session

    path = save_classes(session)
    click.echo(f"{path}: {bytes_text(path.stat().st_size)}; the sessions of this Spark and this Java use it")
