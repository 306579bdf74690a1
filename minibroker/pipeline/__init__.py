"""The log as Spark DataFrames: two tables, streams, and the jobs on them. Needs the extra `minibroker[spark]`.

Nothing is imported here: who uses one part pays for that part. The broker needs none of it, and none of it the broker.
"""
