"""Transactions across partitions (KIP-98, KIP-360, KIP-890): their coordinator, which runs without sockets.

How requests are read and answered is told in `handlers`, what a transaction does to one log in `storage`.
"""
