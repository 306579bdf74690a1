"""Share groups: members that share partitions, without owning them (KIP-932). Deliveries are in `broker/share`."""
