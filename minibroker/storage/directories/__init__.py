"""The directories of `log.dirs`: one, all together, and copying a log from one into another."""
