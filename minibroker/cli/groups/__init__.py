"""`minibroker groups`."""
