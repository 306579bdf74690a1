"""minibroker: a broker in one process that speaks the Apache Kafka wire protocol."""

__version__ = "0.1.0"  # here and nowhere else by hand: tests compare what else has to name it
