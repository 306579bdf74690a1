"""Consumer groups: who belongs to them, who reads what, and how far they have come. No sockets, no request frames.

Each kind of group has a folder of its own; what they share is in the files beside them. Requests are the handlers'.
"""
