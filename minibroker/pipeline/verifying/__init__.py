"""A second check of a log directory by the file formats: what is damaged, inconsistent or left open.

The first check is the storage engine's own recovery; nothing here uses it. `pipeline/decode` decodes batches and
records. `findings.py` lists the kinds of findings, `segment_checks.py` checks one segment, `partition_checks.py`
what spans segments, and `verify_job.py` runs this in parallel with Spark.
"""
