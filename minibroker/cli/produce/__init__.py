"""`minibroker produce`."""
