"""Explains bytes: which part of what they are, and what they say.

`parts` has the tree that comes out, `messages` reads frames and messages by their declarations, `batches` records.
Damaged or unknown bytes never raise: the tree ends where they stop making sense, and says why.
"""
