"""Classic groups: one member, the leader, assigns the partitions; the coordinator keeps the generations apart."""
