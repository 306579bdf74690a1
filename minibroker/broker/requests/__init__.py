"""The path of a request from its frame to its answer."""
