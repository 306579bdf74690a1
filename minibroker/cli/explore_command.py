"""`minibroker explore`: the files of a log directory, saved frames, or both, in the browser, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from minibroker.web.application import Application


@click.command()
@click.argument("path", metavar="DIRECTORY|FILE", type=click.Path(exists=True, path_type=Path))
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The port on 127.0.0.1.  [default: any]")
def explore(path: Path, port: int) -> None:
    """Show a log directory, one of its files, or saved frames byte by byte in the browser, until Ctrl-C.

    Frames are what `minibroker proxy --save` and a journal's `save` have written. A file of the lab has both, and so
    has a zip archive of a log directory. It only reads.
    The page is for this machine alone, and needs the extra minibroker[web].

    \b
    Example:
        minibroker explore minibroker-data
        minibroker explore minibroker-data/orders-0/00000000000000000000.log
        minibroker explore session.flows
    """
    from minibroker.broker.lifecycle import StartError
    from minibroker.lab.lab_files import LabFileError
    from minibroker.proxy.flows import FlowError

    try:
        with TemporaryDirectory(prefix="minibroker-explore-") as unpacked:
            asyncio.run(_serve_explorer(path.resolve(), port, Path(unpacked)))
    except (StartError, FlowError, LabFileError) as error:
        raise click.UsageError(str(error)) from None


async def _serve_explorer(path: Path, port: int, unpacked: Path) -> None:
    """Serve until a stop signal. An archive of the lab is unpacked into the directory `unpacked`."""
    from minibroker.addresses import LOOPBACK, HostPort
    from minibroker.broker.process import make_event_of_stop_signals
    from minibroker.testing.control.control_server import serve_application

    closing = asyncio.Event()

    def make_application() -> Application:
        from minibroker.explorer.explorer_routes import make_files_app
        from minibroker.lab.lab_files import is_archive, unpack_lab_file
        from minibroker.proxy.exploring import make_app_for_exchanges, make_app_for_saved_exchanges
        from minibroker.storage.inspection.inspected_files import identify_file

        if path.is_dir() or identify_file(str(path)) is not None:
            return make_files_app(path)
        if not is_archive(path):
            return make_app_for_saved_exchanges(path, closing)
        opened = unpack_lab_file(path, unpacked)
        return make_app_for_exchanges(opened.frames, path, closing, unpacked if opened.has_logs else None)

    stop = make_event_of_stop_signals()
    async with serve_application(make_application, HostPort(LOOPBACK, port), closing) as url:
        click.echo(f"{path} is explored at {url}/explorer/")
        await stop.wait()
