"""`minibroker proxy` and `minibroker replay`: what clients say to a Kafka, seen, recorded, and said again."""
