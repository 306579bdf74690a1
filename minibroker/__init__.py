"""minibroker: a broker in one process that speaks the Apache Kafka wire protocol."""

try:
    from minibroker._version import version  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # a clone that was never installed
    version = "0.1.0.dev0"

__version__: str = version
