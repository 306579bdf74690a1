"""Background work: compaction, retention and housekeeping."""
