"""Reads the files of a log to show people all of their content, and every damage."""
