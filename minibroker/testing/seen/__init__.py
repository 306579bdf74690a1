"""What a test sees of a broker: requests with their answers, what they are about, and records in its logs."""
