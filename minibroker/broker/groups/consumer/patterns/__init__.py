"""Regular expressions in RE2's syntax, for subscriptions by pattern (KIP-848): read, compiled, matched in linear time.

Python's `re` reads another syntax and can take exponential time, on the loop that everybody waits for; a name either is
in the language of a pattern or not, so that groups, greed and captures do not matter here.
"""
