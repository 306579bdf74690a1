"""Bytes to meaning and back: messages, headers, record batches. Pure: no I/O, no clock, nothing else of ours."""
