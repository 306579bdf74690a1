"""The coordinator of transactions (KIP-98, KIP-360, KIP-890), without sockets.

`handlers` answers requests, and `storage` tracks the transactions in a single log.
"""
