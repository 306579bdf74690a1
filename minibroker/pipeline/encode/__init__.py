"""From rows of Arrow to batches of format 2, whole columns at a time."""
