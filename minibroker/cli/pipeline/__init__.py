"""`minibroker pipeline`, a command a job."""
