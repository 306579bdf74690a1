"""Settings: their table, their typed values, files and environment, and what is changed at run time."""
