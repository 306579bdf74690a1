"""The test kit over HTTP, for tests in other languages. It needs the extra `minibroker[control]`."""
