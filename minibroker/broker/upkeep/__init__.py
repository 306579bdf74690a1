"""Work in the background: compaction, retention and housekeeping."""
