"""The jobs on the two tables: each a function from DataFrame to DataFrame, and what runs it to its end.

Their commands are in `minibroker.cli`; how a log is read is in `pipeline.sources`.
"""
