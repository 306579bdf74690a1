"""What pytest shows of the brokers of a failed test."""
