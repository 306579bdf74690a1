"""The test kit over HTTP, for tests in other languages: needs the extra `minibroker[control]`."""
