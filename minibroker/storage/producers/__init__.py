"""What a log knows of its producers: their states and snapshots, and how their transactions ended."""
