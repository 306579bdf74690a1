"""Decodes and encodes messages, headers and record batches. Pure: no I/O, no clock, no imports of other packages."""
