"""A log directory, minibroker's or Apache Kafka's own, read without a broker: `source.DirectorySource`.

The files' formats are `minibroker.storage`'s business, the records' `minibroker.pipeline.decode`'s.
"""
