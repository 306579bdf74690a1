"""Decisions: placement, elections, reassignments, registration and moves of logs."""
