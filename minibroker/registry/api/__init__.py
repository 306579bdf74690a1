"""The HTTP side of the registry: its server, its paths, who may use it, and what one request asks of the state."""
