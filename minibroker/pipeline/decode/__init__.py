"""From the bytes of batches to Arrow: the rows of the two tables. There is no I/O here."""
