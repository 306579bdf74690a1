"""The second opinion on a log directory: what is damaged, inconsistent or left open, judged from the file formats.

Nothing here asks the storage engine, whose own checks and recovery are the first opinion; batches and records are
decoded by `pipeline/decode`. `findings.py` has what is found, `segment_judgement.py` judges one segment,
`partition_judgement.py` what spans segments, `verify_job.py` lets Spark do it in parallel.
"""
