"""Rows of Arrow into batches of formats 0, 1 and 2, whole columns at a time."""
