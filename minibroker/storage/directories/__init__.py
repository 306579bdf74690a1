"""The directories of `log.dirs`: each one, all together, and moving a log between them."""
