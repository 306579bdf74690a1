"""The state of the cluster: the metadata log, and the image, topics and partitions built from it."""
