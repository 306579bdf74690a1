"""Decisions about the cluster: placement, elections, reassignments, registration and moves of logs."""
