"""The log as Spark DataFrames: two tables, streams, and the jobs on them. Needs the extra `minibroker[spark]`.

Nothing is imported here, so that each part is only imported where it is used. The broker does not need the pipeline,
and the pipeline does not need the broker.
"""
