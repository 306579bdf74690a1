"""Consumer groups of the next generation (KIP-848): members, target assignment, reconciliation, migration.

What all types of groups share is in the package above.
"""
