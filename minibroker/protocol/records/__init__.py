"""Record batches and records: layouts, compression, control records, validation."""
