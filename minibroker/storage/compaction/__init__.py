"""Log compaction: the latest value of each key stays, older ones go, and offsets never change."""
