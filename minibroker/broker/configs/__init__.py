"""Settings: their table, typed values, sources, and changes at run time."""
