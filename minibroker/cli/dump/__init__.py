"""`minibroker dump`."""
