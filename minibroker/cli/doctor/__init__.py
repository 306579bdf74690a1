"""`minibroker doctor`."""
