"""The coordinator runtime: the state topics of all coordinators, and the shards built from them."""
