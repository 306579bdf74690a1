"""`minibroker topics`."""
