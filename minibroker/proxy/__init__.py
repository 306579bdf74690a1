"""A proxy between any client and any Kafka: it shows, records and disturbs what they say, and changes nothing else."""
