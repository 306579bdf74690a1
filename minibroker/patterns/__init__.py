"""Regular expressions in RE2's syntax, of subscriptions (KIP-848) and schemas: read, compiled, matched in linear time.

Python's `re` reads another syntax and can take exponential time, on the loop that all clients wait for. A name matches
or does not, so groups, greediness and captures do not matter here.
"""
