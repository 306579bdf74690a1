"""Record batches and what is inside them: layouts, compression, control records, validation."""
