"""The commands for users, ACLs and quotas of any Kafka."""
