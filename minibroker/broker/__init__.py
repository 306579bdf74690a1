"""The server: sockets, connections, the cluster's state, and a handler for each API."""
