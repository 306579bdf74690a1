"""Groups: their members, assignments and committed offsets. No sockets, no request frames.

Each type of group has a package of its own; what they share is in the files beside these.
"""
