"""Which `LogSource` a reader's options mean: a log directory, or a running broker. Neither is opened here yet."""

from __future__ import annotations

from minibroker.pipeline.log_source import LogSource
from minibroker.pipeline.options import ReadOptions


def open_source(options: ReadOptions) -> LogSource:
    """The log that is to be read. Raises `OptionError` for settings of Kafka's client that are not understood."""
    if options.path is not None:
        from minibroker.pipeline.directory.source import DirectorySource

        return DirectorySource(
            options.path,
            options.selection,
            options.isolation_level,
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_damage=options.mode == "FAILFAST",
        )
    from minibroker.pipeline.brokers.source import BrokerSource

    assert options.bootstrap_servers is not None
    committed = options.isolation_level == "read_committed"
    return BrokerSource(options.bootstrap_servers, options.selection, options.client_settings, committed)
