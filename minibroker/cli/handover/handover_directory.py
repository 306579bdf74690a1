"""Serves a copy of a data directory without its records, so that it can be asked like any Kafka.

The directory itself is only read. Its users may do nothing here, but this process may do everything.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from minibroker.broker.configs.valid_values import STANDARD_AUTHORIZER
from minibroker.broker.metadata.metadata_snapshots import BOOTSTRAP
from minibroker.cli.handover.handover_state import HandoverState
from minibroker.storage.checkpoints.checkpoint_texts import META_PROPERTIES
from minibroker.storage.names import parse_log_name

AT_RUN_TIME = (2, 3)  # the sources of configs (KIP-226): those of one broker, and of all brokers
COPIED_TOPICS = ("__cluster_metadata", "__consumer_offsets")


@contextmanager
def serve_directory_copy(path: str) -> Iterator[str]:
    """Serve a copy of a data directory by a broker in this process; yield HOST:PORT. Raises click.ClickException."""
    from minibroker.broker.configs.properties import parse_java_properties
    from minibroker.broker.lifecycle import StartError
    from minibroker.testing import Broker

    source = Path(path)
    if not (source / META_PROPERTIES).is_file():
        raise click.UsageError(f"{path} has no {META_PROPERTIES}: it is no data directory of a broker")
    meta = {each.key: each.value for each in parse_java_properties((source / META_PROPERTIES).read_text())}
    settings = {
        "node.id": meta.get("node.id") or meta["broker.id"],
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with _log_only_errors(), tempfile.TemporaryDirectory() as temporary:
        _copy_data_directory(source, Path(temporary))
        try:
            with Broker(settings, directory=temporary) as broker:
                yield broker.bootstrap_servers
        except StartError as error:
            raise click.ClickException(f"{path}: {error}") from None


def drop_settings_of_serving_process(state: HandoverState) -> HandoverState:
    """Return the state without the settings of the broker of this process, which only serves the copy.

    Those that were set at run time are in the metadata; others count as Kafka's defaults.
    """
    settings = [each for each in state.settings if each.config_source in AT_RUN_TIME]
    lacking = "the settings of its broker's file, which is not in the directory: they count as Kafka's defaults"
    return state._replace(settings=settings, left_out=[*state.left_out, lacking])


@contextmanager
def _log_only_errors() -> Iterator[None]:
    """Log no warnings meanwhile: the broker would warn that the records are missing."""
    logger = logging.getLogger("minibroker")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _copy_data_directory(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        if entry.name in (META_PROPERTIES, BOOTSTRAP):
            shutil.copy(entry, target)
            continue
        place = parse_log_name(entry.name)
        if entry.is_dir() and place is not None and place[0] in COPIED_TOPICS:
            shutil.copytree(entry, target / entry.name)
