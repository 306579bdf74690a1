"""Groups: their members, the rebalances between them, and what they have committed. One file a duty."""
