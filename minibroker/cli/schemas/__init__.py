"""`minibroker schemas`, and what it shares with `minibroker consume --decode`."""
