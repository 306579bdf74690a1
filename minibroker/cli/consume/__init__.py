"""`minibroker consume`."""
