"""`minibroker transactions`."""
