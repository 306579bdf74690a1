"""`minibroker pipeline`, with a command per job."""
