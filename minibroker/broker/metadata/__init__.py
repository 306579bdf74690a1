"""The state of the cluster: the metadata log, and the image, the topics and the partitions that are folded from it."""
