"""From the bytes of batches to Arrow: the rows of the two tables. No file is opened and no broker is asked here."""
