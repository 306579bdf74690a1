"""Log compaction: it keeps the latest value of each key and removes older ones. Offsets never change."""
