"""Regular expressions in RE2's syntax, of subscriptions (KIP-848) and schemas: read, compiled, matched in linear time.

Python's `re` reads another syntax and can take exponential time, on the loop that all clients wait for. A name matches
or does not, so groups, greediness and captures do not matter here. It is no library's: google-re2 1.1.20251105 has no
wheels for musl (Alpine), nor for WebAssembly, and holds the loop for as long as a search takes.
"""
