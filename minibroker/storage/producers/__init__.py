"""The producers of a log: their states, snapshots of these, and how their transactions ended."""
