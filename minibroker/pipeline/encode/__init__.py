"""From rows of Arrow to batches of formats 0, 1 and 2, whole columns at a time."""
