"""Which `LogSource` a reader's options mean: a log directory, or a running broker. Neither is opened here yet."""

from __future__ import annotations

from importlib import import_module

from minibroker.pipeline.log_source import LogSource
from minibroker.pipeline.options import ReadOptions


def open_source(options: ReadOptions) -> LogSource:
    """The log that is to be read. Raises `OptionError` for settings of Kafka's client that are not understood."""
    read_committed = options.isolation_level == "read_committed"
    if options.path is not None:
        directory: LogSource = import_module("minibroker.pipeline.directory.source").DirectorySource(
            options.path, options.selection, read_committed
        )
        return directory
    broker: LogSource = import_module("minibroker.pipeline.brokers.source").BrokerSource(
        options.bootstrap_servers, options.selection, options.client_settings, read_committed
    )
    return broker
