"""Share groups on the side of the partitions: delivery states, their coordinator, and sessions (KIP-932)."""
