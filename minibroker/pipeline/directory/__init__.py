"""Reads a log directory, minibroker's or Apache Kafka's own, without a broker: `directory_source.DirectorySource`.

`minibroker.storage` knows the formats of files, `minibroker.pipeline.decode` those of records.
"""
