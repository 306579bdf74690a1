"""Faults on demand: which requests (`rules`), what becomes of them (`engine`), and how answers are made wrong."""
