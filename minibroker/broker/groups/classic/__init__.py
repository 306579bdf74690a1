"""Classic groups: their members agree on who reads what, and the coordinator keeps the generations apart.

What is common to all kinds of groups is in the folder above.
"""
