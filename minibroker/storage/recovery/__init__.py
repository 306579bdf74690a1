"""Opens a log, and recovers it after a crash."""
