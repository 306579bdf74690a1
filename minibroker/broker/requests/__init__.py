"""What happens to a request between its frame and its answer."""
