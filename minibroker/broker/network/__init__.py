"""Sockets, framing, connections and listeners: bytes in, frames out, and back."""
