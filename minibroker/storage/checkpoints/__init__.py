"""What a log directory knows in Kafka's small text files, and the leader epochs of a log."""
