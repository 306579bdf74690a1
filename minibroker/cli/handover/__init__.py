"""`minibroker handover`: what is needed for a move to another Kafka, as a script, Strimzi's YAML, or Terraform."""
