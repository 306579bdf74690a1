"""The jobs on the two tables: functions from DataFrame to DataFrame, and the code that runs them.

Their commands are in `minibroker.cli`; `pipeline.sources` reads the log.
"""
